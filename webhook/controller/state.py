"""What our certificates are at one moment, as it is stored: plain values."""

from dataclasses import dataclass, field

from cryptography.x509 import Certificate

from webhook.certificate import Key


@dataclass(frozen=True, slots=True)
class Authority:
    """The CA that signs, and every CA that is trusted: itself first, then older ones."""

    certificate: Certificate
    key: Key = field(repr=False)
    trusted: tuple[Certificate, ...]

    @property
    def older(self) -> tuple[Certificate, ...]:
        """The CAs that are trusted and sign no more."""
        return tuple(one for one in self.trusted if one != self.certificate)


@dataclass(frozen=True, slots=True)
class Leaf:
    """The serving certificate, and the CAs that stand beside it for those who read the Secret."""

    certificate: Certificate
    key: Key = field(repr=False)
    announced: tuple[Certificate, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What is stored and can be used; `known` are all CAs found stored, also beside what cannot be used."""

    authority: Authority | None = None
    leaf: Leaf | None = None
    known: tuple[Certificate, ...] = ()

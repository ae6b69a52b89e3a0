"""The texts that people write: read with every value's place, and edited without touching the rest."""

{{- define "drainproof.labels" -}}
app.kubernetes.io/name: drainproof
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "drainproof.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "drainproof.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "drainproof.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Where Pods may go; takes the values of the webhook or the controller. */ -}}
{{- define "drainproof.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Over nodes and zones; takes the component. */ -}}
{{- define "drainproof.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: DoNotSchedule
  nodeTaintsPolicy: Honor
  labelSelector:
    matchLabels: {app.kubernetes.io/name: drainproof, app.kubernetes.io/component: {{ . }}}
  matchLabelKeys: [pod-template-hash]
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {app.kubernetes.io/name: drainproof, app.kubernetes.io/component: {{ . }}}
  matchLabelKeys: [pod-template-hash]
{{- end -}}

{{- /* Whether there is anything for a controller to do. */ -}}
{{- define "drainproof.controlled" -}}
{{- with .Values -}}
{{- if or (eq .certificates.source "controller") .controller.watch .controller.discovery .stamp.enabled }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{- /* What the policy says of the stamp, as YAML. */ -}}
{{- define "drainproof.stamp" -}}
{{- get (.Values.policy.rules | default dict) "disruption-stamp" | default dict | toYaml -}}
{{- end -}}

{{- /* The users that a policy names by globs, as an expression for the API server. */ -}}
{{- define "drainproof.users" -}}
{{- $patterns := list -}}
{{- range . -}}
{{- $patterns = append $patterns (regexQuoteMeta . | replace "\\*" ".*" | replace "\\?" "." | replace "\\[" "[" | replace "\\]" "]" | replace "[!" "[^") -}}
{{- end -}}
request.userInfo.username.matches(r'^({{ join "|" $patterns }})$')
{{- end -}}

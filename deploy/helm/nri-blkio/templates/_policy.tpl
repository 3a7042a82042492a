{{/*
Fails unless a value of a node policy fits a schema, which has only the words of JSON Schema that files/policy.schema.json
uses. Helm applies schemas to values only, and a policy is a text in one. Arguments: file, the name of that value; value;
at, its path in the policy; schema, defs.
*/}}
{{- define "nri-blkio.checkPolicy" -}}
{{- $value := .value -}}
{{- $s := .schema -}}
{{- with get $s "$ref" }}{{ $s = get $.defs (base .) }}{{ end -}}
{{- $kind := get (dict "map" "object" "slice" "array" "string" "string" "bool" "boolean" "float64" "number") (kindOf $value) -}}
{{- $problem := "" -}}
{{- with get $s "type" -}}
{{- $types := kindIs "slice" . | ternary . (list .) -}}
{{- if not (or (has $kind $types) (and (has "integer" $types) (eq $kind "number") (eq (toString $value) (toString (int64 $value))))) -}}
{{- $problem = printf "must be of type %s" (join " or " $types) -}}
{{- end -}}
{{- end -}}
{{- with get $s "enum" }}{{ if not (has $value .) }}{{ $problem = print "must be " (join " or " .) }}{{ end }}{{ end -}}
{{- with get $s "pattern" }}{{ if and (eq $kind "string") (not (regexMatch . $value)) }}{{ $problem = print "must be " (get $s "description" | default (print "like " .)) }}{{ end }}{{ end -}}
{{- with get $s "minimum" }}{{ if or (lt (int64 $value) (int64 .)) (gt (int64 $value) (int64 $s.maximum)) }}{{ $problem = printf "must be from %v to %v" . $s.maximum }}{{ end }}{{ end -}}
{{- if $problem }}{{ fail (printf "%s: %s: invalid value %s: %s" .file .at (toJson $value) $problem) }}{{ end -}}
{{- if eq $kind "object" -}}
{{- range get $s "required" | default list -}}
{{- if not (hasKey $value .) }}{{ fail (printf "%s: %s: required" $.file (print $.at "." . | trimPrefix ".")) }}{{ end -}}
{{- end -}}
{{- range $name, $field := $value -}}
{{- $at := print $.at "." $name | trimPrefix "." -}}
{{- $schema := get (get $s "properties" | default dict) $name | default (get $s "additionalProperties") -}}
{{- if not $schema }}{{ fail (printf "%s: %s: unknown field" $.file $at) }}{{ end -}}
{{- include "nri-blkio.checkPolicy" (dict "file" $.file "value" $field "at" $at "schema" $schema "defs" $.defs) -}}
{{- end -}}
{{- else if eq $kind "array" -}}
{{- range $i, $element := $value -}}
{{- include "nri-blkio.checkPolicy" (dict "file" $.file "value" $element "at" (printf "%s[%d]" $.at $i) "schema" $s.items "defs" $.defs) -}}
{{- end -}}
{{- end -}}
{{- end -}}

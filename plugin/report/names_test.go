package report

import "testing"

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		namespace, pod, container string
		want                      string
	}{
		{"prod", "db-0", "db", "prod/db-0 db"},
		{"prod", "db-0", "", "prod/db-0"},
		{"", "unknown", "", "unknown"},
		{"prod", "", "", ""},
	} {
		if got := ContainerName(tt.namespace, tt.pod, tt.container); got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

package annotation

import "testing"

// TestIsKey verifies that what IsKey accepts is what Parse reads.
func TestIsKey(t *testing.T) {
	for key, want := range map[string]bool{
		"limits." + Domain + "/containers": true, "weight." + Domain + "/": true, Domain + "/x": true, "x." + Domain: true,
		"limits.xblkio.noderesource.dev/containers": false, "limits." + Domain + ".example/containers": false, "example.com/" + Domain: false, "": false,
	} {
		if got := IsKey(key); got != want {
			t.Errorf("%s: %t, want %t", key, got, want)
		}
		if parsed := !Parse(map[string]string{key: "* wbps=1Mi"}).Empty(); parsed != want {
			t.Errorf("%s: parsed %t, want %t", key, parsed, want)
		}
	}
}

package lab

import (
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// MaxMessage bounds the line that a tenant sees.
const MaxMessage = 400

// RefusedConfig is a container that would work with a right annotation.
func RefusedConfig(name string) cri.ContainerConfig {
	return Sleeper(name, "/data", "ext4", "/data/too", "ext4", "/mem", "tmpfs")
}

// WantRefusal creates a container three times, as the kubelet would go on
// doing, and wants the same line each time.
func WantRefusal(t *testing.T, pod PodOf, container, annotation, want string) {
	t.Helper()
	want = "nri-blkio: " + annotation + ": " + want
	var first string
	for try := range 3 {
		k, err := pod.Create(t.Context(), RefusedConfig(container))
		if err == nil {
			t.Errorf("the container was created, want it rejected with %q", want)
			_ = k.Remove(t.Context())
			return
		}
		message := status.Convert(err).Message()
		at := strings.Index(message, "nri-blkio: ")
		if at < 0 {
			t.Fatalf("the error has no message of nri-blkio: %q", message)
		}
		line := message[at:]
		if try == 0 {
			first = message
			for _, dir := range Volumes {
				if strings.Contains(message, dir) {
					t.Errorf("the message shows the tenant the node's path %s: %s", dir, message)
				}
			}
			if len(line) > MaxMessage {
				t.Errorf("the message has %d bytes, want at most %d: %s", len(line), MaxMessage, line)
			}
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("the message is not one line of printable ASCII: %q", line)
			}
			if line != want {
				t.Errorf("the message is\n%s\nwant\n%s", line, want)
			}
		}
		if message != first {
			t.Errorf("the error of try %d is\n%s\nthat of the first try was\n%s", try+1, message, first)
		}
	}
}

package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/policy"
)

// withTimeout is a stub that is asked for nothing else.
type withTimeout struct{ stub.Stub }

func (withTimeout) RequestTimeout() time.Duration { return 0 }

func TestRootfsByHandler(t *testing.T) {
	h, _ := tree(t, podCgroup)
	p := newPlugin(t, h)
	p.layers.Store(&Layers{
		Default: Layer{Dir: "/var/lib/containerd"},
		Handlers: map[string]Layer{
			"":     {Dir: "/mnt/data/layers"},
			"thin": {Reason: "it has a device of its own"},
		},
	})
	pol := *policy.Default()
	pol.HostKernelHandlers = append(pol.HostKernelHandlers, "thin", "other")
	p.Reload(&pol)
	for handler, want := range map[string]string{
		"":      "254:16 wbps=1048576",
		"other": "254:0 wbps=1048576",
		"thin":  "cannot be limited: it has a device of its own",
	} {
		sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
		sb.RuntimeHandler = handler
		sb.Id = "sb-" + handler
		c := ctr("db")
		c.PodSandboxId = sb.Id
		adjust, err := p.create(t.Context(), sb, c, false)
		got := adjust.GetLinux().GetResources().GetUnified()["io.max"]
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("handler %q: got %s, want %s", handler, got, want)
		}
	}
}

// TestLayersAreReadAgain: a runtime that registers us again may have been
// restarted for the sake of its configuration.
func TestLayersAreReadAgain(t *testing.T) {
	h, _ := tree(t, podCgroup)
	p := newPlugin(t, h)
	log, hook := test.NewNullLogger()
	p.log = log
	var asked []string
	fresh, failure := Layers{Default: Layer{Dir: "/mnt/data/layers"}}, error(nil)
	p.readLayers = func(_ context.Context, runtime, version string) (Layers, error) {
		asked = append(asked, runtime+" "+version)
		return fresh, failure
	}
	s := &session{p: p, log: log, link: link{stub: withTimeout{}}, deadline: time.Minute}
	configure := func() {
		t.Helper()
		if _, err := s.Configure(t.Context(), "", "containerd", "v2.1.0"); err != nil {
			t.Fatal(err)
		}
		if got := p.layers.Load(); !got.Equal(Layers{Default: Layer{Dir: "/mnt/data/layers"}}) {
			t.Errorf("got %+v", got)
		}
	}
	configure()
	fresh, failure = Layers{}, errors.New("parse it: no")
	configure()
	if len(asked) != 2 || asked[0] != "containerd v2.1.0" {
		t.Errorf("asked with %q", asked)
	}
	said := false
	for _, e := range hook.AllEntries() {
		said = said || e.Level == logrus.ErrorLevel && e.Data[logrus.ErrorKey] == failure //nolint:errorlint // the very one
	}
	if !said {
		t.Error("nothing logged of a configuration that cannot be read")
	}
}

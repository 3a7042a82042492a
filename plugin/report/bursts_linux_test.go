package report

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// TestBurstText verifies the text of a burst.
func TestBurstText(t *testing.T) {
	for want, b := range map[string]*inspect.Burst{
		"": nil, ", burst to 5Mi/60s, credits -1%": {Burst: "5Mi/60s", Credits: -0.01}, ", raised to 5Mi/60s, credits 40%": {Burst: "5Mi/60s", Raised: true, Credits: 0.4},
	} {
		if got := burstText(&inspect.Value{Burst: b}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

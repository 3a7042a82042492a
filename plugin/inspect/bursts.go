package inspect

import (
	"path"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Burst is the burst of a limit.
type Burst struct {
	Burst  string `json:"burst"` // RATE/DURATION
	Raised bool   `json:"raised"`
	// Credits are those of the owner, as a part of a whole burst. They are below zero for a debt.
	Credits float64 `json:"credits"`
}

// addBursts adds the bursts to limits. A limit that is raised to its burst is in force, and so is a backstop that is raised with it.
func (h *Host) addBursts(values []Value) error {
	if h.Bursts == nil {
		return nil
	}
	book, err := h.Bursts.Read()
	type at struct{ cgroup, dev, key string }
	bursts, raised, above := map[at]*Burst{}, map[at]blkio.Amount{}, map[at]blkio.Amount{}
	for _, s := range book.Limits() {
		place := at{s.Cgroup, s.Dev.String(), s.Key.String()}
		bursts[place] = &Burst{annotation.FormatBurst(s.Key, s.Burst), s.Raised, s.Credits / s.Whole()}
		if s.Raised {
			raised[place] = s.Burst.Rate
			place.cgroup = path.Dir(s.Cgroup)
			above[place] += s.Burst.Rate - s.Limit
		}
	}
	for i := range values {
		v := &values[i]
		place := at{v.Cgroup, v.Dev, v.Key}
		v.Burst = bursts[place]
		key, isLimit := blkio.ParseKey(blkio.IOMax, v.Key)
		if !isLimit || v.State != ValueDrift {
			continue
		}
		inForce := raised[place]
		if asked, p := annotation.ParseAmount(key, v.Asked); p == nil && inForce == 0 && v.Source.Kind == policy.FromBackstop {
			inForce = asked + above[place]
		}
		if v.InForce == annotation.FormatAmount(key, inForce) {
			v.State = ValueOK
		}
	}
	return err
}

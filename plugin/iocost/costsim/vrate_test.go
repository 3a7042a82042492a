package costsim

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// vrateStep is vrate_adj_pct.
func vrateStep(busy int) float64 {
	switch n := max(busy, -busy); {
	case n < 4:
		return 0
	case n < 20:
		return .01
	case n < 36:
		return .02
	case n < 44:
		return .04
	case n < 52:
		return .08
	}
	return .16
}

// adjustRate follows the end of ioc_timer_fn and ioc_adjust_base_vrate. No request waits for a place in the queue.
func (c *ioc) adjustRate(shortages, lags int) {
	busy, met := false, true
	for i, pct := range [2]blkio.Percent{c.qos.RPct, c.qos.WPct} {
		missed, allowed := 0., 1-float64(pct)/10000
		if c.requests[i] > 0 {
			missed = c.missed[i] / c.requests[i]
		}
		busy, met = busy || missed > allowed, met && missed <= allowed*unbusy
	}
	c.requests, c.missed = [2]float64{}, [2]float64{}
	switch {
	case busy:
		c.busy = max(c.busy, 0) + 1
	case met && shortages > 0:
		c.busy = min(c.busy, 0)
		if lags == 0 {
			c.busy--
		}
	default:
		c.busy = 0
	}
	least, most := float64(c.qos.Min)/10000, float64(c.qos.Max)/10000
	switch step := vrateStep(c.busy); {
	case c.busy == 0 || c.busy < 0 && lags > 0:
	case c.base < least:
		c.base = min(c.base*(1+clampStep), least)
	case c.base > most:
		c.base = max(c.base*(1-clampStep), most)
	case c.busy > 0:
		c.base = max(c.base*(1-step), least)
	default:
		c.base = min(c.base*(1+step), most)
	}
}

// completed follows ioc_rqos_done.
func (c *ioc) completed(r *request, onQueue float64) {
	d := direction(r.write)
	target := [2]time.Duration{c.qos.RLat, c.qos.WLat}[d]
	c.requests[d]++
	if onQueue-c.model[d].page*float64(r.size/4096) > target.Seconds() {
		c.missed[d]++
	}
	r.w.group.done += r.cost
}

func direction(write bool) int {
	if write {
		return 1
	}
	return 0
}

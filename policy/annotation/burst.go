package annotation

import (
	"strconv"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// BurstSuffix makes a key of limits that of a burst: "wbps.burst".
const BurstSuffix = ".burst"

const maxBurst = time.Hour

// BurstKeys returns the keys of bursts.
func BurstKeys() (names []string) {
	for _, name := range LimitKeys() {
		names = append(names, name+BurstSuffix)
	}
	return names
}

// parseBurst parses the value of a key of a burst, RATE/DURATION:
//
//	100Mi/60s
//
// The duration is that of a burst from full credits at the whole rate, in whole seconds.
func parseBurst(k blkio.Key, s string) (b blkio.Burst, p *Problem) {
	rate, duration, found := strings.Cut(s, "/")
	if !found {
		return b, &Problem{"burst " + quote.Text(s) + " has no duration", "write for example " + example(k) + "/60s"}
	}
	if b.Rate, p = parseRate(k, rate); p != nil {
		return b, p
	}
	if b.Rate == blkio.Max {
		return b, &Problem{"burst " + quote.Text(s) + " has no rate", "write for example " + example(k) + "/60s"}
	}
	d, err := time.ParseDuration(duration)
	if err != nil || d < time.Second || d > maxBurst || d%time.Second != 0 || strings.Trim(duration, "0123456789hms") != "" {
		return b, &Problem{"invalid duration " + quote.Text(duration), "write 1s to 1h, for example " + example(k) + "/60s"}
	}
	b.Seconds = uint32(d / time.Second)
	return b, nil
}

// FormatBurst is the inverse of the parser: 100Mi/60s.
func FormatBurst(k blkio.Key, b blkio.Burst) string {
	return FormatAmount(k, b.Rate) + "/" + strconv.FormatUint(uint64(b.Seconds), 10) + "s"
}

// FormatLimit formats a limit with its burst as in annotations, "wbps=20Mi wbps.burst=100Mi/60s".
func FormatLimit(k blkio.Key, rate blkio.Amount, b blkio.Burst) string {
	text := k.String() + "=" + FormatAmount(k, rate)
	if !b.IsZero() {
		text += " " + k.String() + BurstSuffix + "=" + FormatBurst(k, b)
	}
	return text
}

// Burst returns the burst of a key; that of a key without bursts is zero.
func (e *Entry) Burst(k blkio.Key) blkio.Burst {
	if k >= blkio.NumLimits {
		return blkio.Burst{}
	}
	return e.bursts[k]
}

// setBurst parses "wbps.burst=100Mi/60s".
func (e *Entry) setBurst(name, value string) *Problem {
	keys := KeysOf(strings.TrimSuffix(name, BurstSuffix))
	switch {
	case e.Target.Kind == TargetClaim:
		return &Problem{"a claim has no bursts", "write " + quote.Text(name) + " into an annotation of the pod"}
	case value == "":
		return &Problem{"key " + quote.Text(name) + " has no value", "write for example " + name + "=" + example(keys[0]) + "/60s"}
	}
	burst, p := parseBurst(keys[0], value)
	for _, k := range keys {
		if !e.bursts[k].IsZero() {
			return &Problem{"two bursts of " + k.String(), "write one of them"}
		}
		e.bursts[k] = burst
	}
	return p
}

func (e *Entry) checkBursts() *Problem {
	for i, b := range e.bursts {
		k := blkio.Key(i)
		switch rate := e.Limits[i]; {
		case b.IsZero():
		case rate == blkio.Unset || rate == blkio.Max:
			return &Problem{"a burst of " + k.String() + " without a limit", "write for example " + k.String() + "=" + example(k)}
		case b.Rate <= rate:
			return &Problem{
				k.String() + BurstSuffix + "=" + FormatBurst(k, b) + " is not above the limit " + FormatAmount(k, rate),
				"write a burst with a larger rate",
			}
		}
	}
	return nil
}

// isBurst reports whether a key is one of a burst.
func isBurst(name string) bool {
	limit, found := strings.CutSuffix(name, BurstSuffix)
	return found && KeysOf(limit) != nil
}

func unknownKey(name string) *Problem {
	p := &Problem{Cause: "unknown key " + quote.Text(name), Hint: spelling.Hint(name, append(LimitKeys(), BurstKeys()...)...)}
	if p.Hint == "" {
		p.Hint = "the keys are rbps, wbps, riops and wiops, and for both directions bps and iops"
	}
	return p
}

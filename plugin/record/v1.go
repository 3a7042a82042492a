package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// recordV1 is a record of version 1. The next write replaces it.
type recordV1 struct {
	identity
	outcome
	Limits        []limitV1
	Weight        blkio.Amount // 0 for none
	WeightFrom    string       // the annotation
	Dropped       []string     // lines of io.max
	DroppedWeight blkio.Amount
	Exits         []struct {
		Container string
		CgroupIDs []uint64
		Limits    []string // lines of io.max
		At        time.Time
	}
}

type limitV1 struct {
	Dev, Disk, Key string
	Rate           blkio.Amount
	Source         policy.Source
}

func parseV1(data []byte) (*Record, error) {
	var o recordV1
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParse, err)
	}
	r := newRecord(o.identity, o.outcome)
	settings := settingsV1(nil, o.Weight, policy.Source{Kind: policy.FromAnnotation, Name: o.WeightFrom})
	for _, l := range o.Limits {
		dev, err := blkio.ParseDev(l.Dev)
		key, known := blkio.ParseKey(blkio.IOMax, l.Key)
		if err != nil || !known || l.Rate == blkio.Unset {
			continue // of a later program
		}
		if r.Disks == nil {
			r.Disks = map[blkio.Dev]string{}
		}
		r.Disks[dev] = l.Disk
		settings = append(settings, policy.Setting{
			Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: l.Rate}, Source: l.Source,
		})
	}
	r.Settings = policy.NewSettings(settings...)
	for _, e := range o.Exits {
		r.Exits = append(r.Exits, Exit{e.Container, e.CgroupIDs, settingsV1(e.Limits, 0, policy.Source{}), e.At})
	}
	return r, nil
}

// settingsV1 parses lines of io.max, which have only the keys that are set, and a weight. A
// line that cannot be read is one of a later program.
func settingsV1(lines []string, weight blkio.Amount, source policy.Source) policy.Settings {
	var out []policy.Setting
	for _, line := range lines {
		first, pairs, _ := strings.Cut(line, " ")
		dev, err := blkio.ParseDev(first)
		if err != nil {
			continue
		}
		for pair := range strings.FieldsSeq(pairs) {
			values, err := parsePair(blkio.IOMax, pair, []blkio.Dev{dev})
			if err != nil {
				continue
			}
			for _, v := range values {
				out = append(out, policy.Setting{Value: v, Source: source})
			}
		}
	}
	if weight != 0 {
		value := blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: weight}
		out = append(out, policy.Setting{Value: value, Source: source})
	}
	return policy.NewSettings(out...)
}

package limits

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// soakPod is a pod with random annotations, and what must be in force for it. That is
// computed while the annotations are written, and not by reading them.
type soakPod struct {
	number      uint64
	annotations lab.Annotations
	containers  []soakContainer
	total       rates // of pod-total
	life        time.Duration
	// invalid is true if the annotation of the first container is invalid, so that it must be rejected.
	invalid bool
}

type soakContainer struct {
	cfg    cri.ContainerConfig
	want   rates
	weight int // 0: none requested
}

// rates are limits by disk and key.
type rates map[string]map[string]uint64

// soakKeys are in the order of io.max.
var soakKeys = []string{"rbps", "wbps", "riops", "wiops"}

// soakVolumes is the disk of each volume that a pod may have.
var soakVolumes = map[string]string{"ext4": "vdb", "part": "vdc", "xfs": "vdd", "btrfs": "vde"}

// soakInvalid are annotations that are refused on any node.
var soakInvalid = []string{"/data wbps=1Ki", "/data wpbs=1Mi", "/nowhere wbps=1Mi", "/data", "/data wbps=50MB", "data wbps=1Mi"}

// newSoakPod is the pod with this number: the same for the same seed.
func newSoakPod(seed, number uint64) soakPod {
	r := rand.New(rand.NewPCG(seed, number))
	p := soakPod{number: number, annotations: lab.Annotations{}, total: rates{}}
	p.life = time.Duration(r.Int64N(int64(6 * time.Second)))
	volume := slices.Sorted(maps.Keys(soakVolumes))[r.IntN(len(soakVolumes))]
	for i := range 1 + r.IntN(4)/3 {
		p.containers = append(p.containers, soakContainer{cfg: lab.Sleeper(fmt.Sprintf("c%d", i), "/data", volume), want: rates{}})
	}
	switch kind := r.IntN(20); {
	case kind < 3: // no annotations
	case kind < 5:
		p.invalid = true
		p.annotations[lab.Limits+"container.c0"] = soakInvalid[r.IntN(len(soakInvalid))]
	default:
		p.annotate(r, soakVolumes[volume])
	}
	return p
}

// annotate requests limits on the disk of the volume and on the root disk.
func (p *soakPod) annotate(r *rand.Rand, disk string) {
	if r.IntN(3) == 0 {
		var text string
		text, p.total = soakLimits(r, disk)
		p.annotations[lab.Limits+"pod-total"] = text
	}
	if all := r.IntN(2) == 0; all {
		text, want := soakLimits(r, disk)
		p.annotations[lab.Limits+"containers"] = text
		for i := range p.containers {
			p.containers[i].want = want
		}
	}
	for i := range p.containers {
		c := &p.containers[i]
		if p.annotations[lab.Limits+"containers"] == "" && r.IntN(4) > 0 {
			p.annotations[lab.Limits+"container."+c.cfg.Name], c.want = soakLimits(r, disk)
		}
		if r.IntN(3) == 0 {
			c.weight = 1 + r.IntN(100)
			p.annotations[lab.Weight+"container."+c.cfg.Name] = fmt.Sprint(c.weight)
		}
		// What is limited may write: its end is then handed over. What is not would take the CPU.
		if c.want[disk]["wbps"] > 0 && r.IntN(2) == 0 {
			c.cfg.Args = []string{"write", "--path", fmt.Sprintf("/data/soak-%d-%s", p.number, c.cfg.Name), "--block", "16Ki", "--span", "512Ki", "--sync", "128Ki"}
		}
	}
}

// soakLimits is an annotation, and what it means where the volume is on the disk.
func soakLimits(r *rand.Rand, disk string) (text string, want rates) {
	want = rates{}
	add := func(target string, disks ...string) {
		entry := []string{target}
		for _, key := range soakKeys {
			if r.IntN(2) == 0 && (key != "wbps" || len(entry) > 1) {
				continue
			}
			value := uint64(50 + r.IntN(5000))
			written := fmt.Sprint(value)
			if strings.HasSuffix(key, "bps") {
				value = uint64(8+r.IntN(200)) << 16
				written = fmt.Sprintf("%dKi", value>>10)
			}
			entry = append(entry, key+"="+written)
			for _, d := range disks {
				want.set(d, key, value)
			}
		}
		if len(entry) > 1 {
			text += strings.Join(entry, " ") + "; "
		}
	}
	switch r.IntN(4) {
	case 0:
		add("*", disk, "vda")
	case 1:
		add("rootfs", "vda")
		add("/data", disk)
	case 2:
		add("rootfs", "vda")
	default:
		add("/data/below", disk)
	}
	if text == "" {
		return soakLimits(r, disk)
	}
	return strings.TrimSuffix(text, "; "), want
}

func (l rates) set(disk, key string, value uint64) {
	if l[disk] == nil {
		l[disk] = map[string]uint64{}
	}
	l[disk][key] = value
}

// IOMax are the limits as the kernel prints them.
func (l rates) ioMax() lab.Disks {
	out := lab.Disks{}
	for disk, byKey := range l {
		var pairs []string
		for _, key := range soakKeys {
			if value, ok := byKey[key]; ok {
				pairs = append(pairs, fmt.Sprintf("%s=%d", key, value))
			}
		}
		out[disk] = strings.Join(pairs, " ")
	}
	return out
}

// whole returns the limits of the pod's own cgroup while all containers run: the smaller one of
// pod-total and, if each container has a limit, of the containers' sum.
func (p *soakPod) whole() rates {
	out := rates{}
	for _, disk := range append(slices.Collect(maps.Values(soakVolumes)), "vda") {
		for _, key := range soakKeys {
			total, limited := p.total[disk][key]
			var sum uint64
			all := true
			for _, c := range p.containers {
				value, ok := c.want[disk][key]
				sum, all = sum+value, all && ok
			}
			switch {
			case all && limited:
				out.set(disk, key, min(sum, total))
			case all:
				out.set(disk, key, sum)
			case limited:
				out.set(disk, key, total)
			}
		}
	}
	return out
}

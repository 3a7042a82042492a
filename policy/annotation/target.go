package annotation

import (
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Target is the first word of an entry, which selects disks.
type Target struct {
	Kind   TargetKind
	Path   string // of TargetPath: absolute and clean
	Volume string // of TargetVolume: a DNS label
	Glob   string // of TargetDisk: a pattern of [path.Match]
	Claim  string // of TargetClaim, which has no text: limits of a claim name no target
	Text   string // as the user wrote it
}

// TargetKind is the form of a target.
type TargetKind uint8

// The kinds of targets. On one disk and in one scope the later one wins; a path, a volume and a
// claim are names of the same thing. Only the node policy can have a TargetDisk, and only the limits of a claim a TargetClaim.
const (
	TargetStar TargetKind = iota
	TargetDisk
	TargetRootfs
	TargetPath
	TargetVolume
	TargetClaim
)

// Rank orders targets by precedence: on one disk and in one scope the target with the
// larger rank wins.
func (t *Target) Rank() TargetKind { return min(t.Kind, TargetPath) }

// is reports whether two targets are one, however they were written.
func (t *Target) is(o *Target) bool {
	return t.Kind == o.Kind && t.Path == o.Path && t.Volume == o.Volume && t.Claim == o.Claim && t.Glob == o.Glob
}

// Name returns the path, "@VOLUME" or "claim CLAIM", for messages.
func (t *Target) Name() string {
	switch t.Kind {
	case TargetVolume:
		return "@" + t.Volume
	case TargetClaim:
		return "claim " + t.Claim
	}
	return t.Path
}

// Where returns the place of a mount for messages, such as `at "/data"`.
func (t *Target) Where() string {
	if t.Kind == TargetVolume {
		return "of volume " + quote.Text(t.Volume)
	}
	return "at " + quote.Text(t.Path)
}

// parseVolume parses "@data", by the rule for the names of a pod's volumes.
func (t *Target) parseVolume() *Problem {
	t.Volume = t.Text[1:]
	switch {
	case t.Volume == "":
		return &Problem{"missing volume name after @", "write for example " + quote.Text("@data wbps=50Mi")}
	case !IsLabel(t.Volume):
		return &Problem{"invalid volume name " + quote.Text(t.Volume), hintLabel}
	}
	return nil
}

// diskPrefix begins a target that selects disks by name.
const diskPrefix = "disk:"

// isDisk reports whether the first word of an entry selects disks by name.
func isDisk(word string) bool { return strings.HasPrefix(word, diskPrefix) }

// parsePolicyTarget parses the first word of an entry of the node policy. It may select disks by name:
//
//	disk:nvme*
//	disk:/dev/disk/by-id/*SSD*
func parsePolicyTarget(word string) (Target, *Problem) {
	if isDisk(word) {
		t := Target{Kind: TargetDisk, Glob: word[len(diskPrefix):], Text: word}
		return t, t.checkGlob()
	}
	t, p := parseTarget(word)
	if name, _, found := strings.Cut(word, ":"); p != nil && found && spelling.Hint(name, "disk") != "" {
		p.Hint = "did you mean " + quote.Text(diskPrefix+word[len(name)+1:]) + "?"
	}
	return t, p
}

// checkGlob returns the problem of a pattern that no disk can match.
func (t *Target) checkGlob() *Problem {
	const example = "write for example disk:nvme*, or disk:/dev/disk/by-id/*SSD*"
	clean := path.Clean(t.Glob)
	_, err := path.Match(t.Glob, "")
	switch {
	case t.Glob == "":
		return &Problem{"missing name after disk:", example}
	case err != nil:
		return &Problem{"invalid pattern " + quote.Text(t.Glob), "write * for any characters, ? for one; " + example}
	case !strings.HasPrefix(t.Glob, "/") && strings.Contains(t.Glob, "/"):
		return &Problem{"the kernel name of a disk has no /: " + quote.Text(t.Glob), "write " + quote.Text(diskPrefix+"/dev/"+t.Glob)}
	case clean != t.Glob:
		return &Problem{"the path " + quote.Text(t.Glob) + " is not clean", "write " + quote.Text(diskPrefix+clean)}
	case strings.HasPrefix(t.Glob, "/") && !isInDev(t.Glob):
		return &Problem{quote.Text(t.Glob) + " is not a path below /dev", "write the path of a mount without " + diskPrefix + ", or " + example[len("write for example "):]}
	}
	return nil
}

// isInDev reports whether a pattern can match paths below /dev.
func isInDev(glob string) bool {
	first, rest, _ := strings.Cut(glob[1:], "/")
	matches, _ := path.Match(first, "dev")
	return matches && rest != ""
}

// MatchesDisk reports whether the glob of a TargetDisk matches the kernel name of a disk, such as "sda", its path
// in /dev, or one of links, which are other paths of it.
func (t *Target) MatchesDisk(name string, links []string) bool {
	if !strings.HasPrefix(t.Glob, "/") {
		matches, _ := path.Match(t.Glob, name)
		return matches
	}
	// The kernel's name of /dev/cciss/c0d0 is "cciss!c0d0".
	if matches, _ := path.Match(t.Glob, "/dev/"+strings.ReplaceAll(name, "!", "/")); matches {
		return true
	}
	for _, link := range links {
		if matches, _ := path.Match(t.Glob, link); matches {
			return true
		}
	}
	return false
}

// sharesKey reports whether both entries have a value for some key.
func (e *Entry) sharesKey(o *Entry) bool {
	for k, rate := range e.Limits {
		if rate != 0 && o.Limits[k] != 0 {
			return true
		}
	}
	return false
}

// Targets has all that the limits and weights of a pod can select. Only disks that one of them covers are
// searched for.
type Targets struct {
	Paths   []string // sorted, distinct
	Volumes []string // names, sorted, distinct
	Widest  Width    // of the other targets
	Weights bool     // some of them have a weight
	Disks   bool     // some of them are disk:GLOB, which also selects disks below others
}

// Width orders the targets that select other disks than those of one mount.
type Width uint8

// The widths.
const (
	OnlyMounts Width = iota // neither "rootfs" nor "*"
	Rootfs                  // "rootfs"
	Star                    // "*" or disk:GLOB, which include the writable layer
)

// HasStar reports whether "*" or disk:GLOB is one of the targets.
func (t Targets) HasStar() bool { return t.Widest == Star }

// HasRootfs reports whether a target selects the writable layer, which "rootfs" and "*" do.
func (t Targets) HasRootfs() bool { return t.Widest >= Rootfs }

// add adds the targets of a list, which may be nil.
func (t *Targets) add(l *List) {
	if l == nil {
		return
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		t.Weights = t.Weights || e.Weight != 0
		switch e.Target.Kind {
		case TargetPath:
			t.Paths = append(t.Paths, e.Target.Path)
		case TargetVolume:
			t.Volumes = append(t.Volumes, e.Target.Volume)
		case TargetRootfs:
			t.Widest = max(t.Widest, Rootfs)
		case TargetStar:
			t.Widest = Star
		case TargetDisk:
			t.Widest, t.Disks = Star, true
		}
	}
}

func (t *Targets) tidy() {
	for _, list := range []*[]string{&t.Paths, &t.Volumes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// And returns the targets of t and of all others. Mostly these are those of one of them, and their lists are shared.
func (t Targets) And(others ...Targets) Targets {
	for _, o := range others {
		switch {
		case t.Covers(o):
		case o.Covers(t):
			t = o
		default:
			t = Targets{
				Paths: slices.Concat(t.Paths, o.Paths), Volumes: slices.Concat(t.Volumes, o.Volumes),
				Widest: max(t.Widest, o.Widest), Weights: t.Weights || o.Weights, Disks: t.Disks || o.Disks,
			}
			t.tidy()
		}
	}
	return t
}

// Covers reports whether each target of o is one of t.
func (t Targets) Covers(o Targets) bool {
	return t.Widest >= o.Widest && (t.Weights || !o.Weights) && (t.Disks || !o.Disks) &&
		containsAll(t.Paths, o.Paths) && containsAll(t.Volumes, o.Volumes)
}

// containsAll reports whether a sorted list has each element of another one.
func containsAll(all, some []string) bool {
	if len(some) == 0 || len(all) == len(some) && &all[0] == &some[0] {
		return true // mostly it is the same list, which a tenant can make long
	}
	return !slices.ContainsFunc(some, func(s string) bool {
		_, found := slices.BinarySearch(all, s)
		return !found
	})
}

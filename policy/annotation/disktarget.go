package annotation

import (
	"path"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

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

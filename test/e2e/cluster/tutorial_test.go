package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// TestTutorial follows docs/tutorial/first-limit.md: it runs the commands of the page, and looks for the output that the
// page has. The node has images, and no registry: so no image is built, and the pod has another one.
func TestTutorial(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(lab.Node.Payload, "docs/tutorial/first-limit.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRelease(t)
	u := &tutorial{
		staged: &staged{cluster: r.cluster, page: sectionsOf(string(data)), dir: t.TempDir()},
		define: "export HOME=" + t.TempDir() + "\nhelm() { " + filepath.Join(lab.Node.Payload, payload.Helm) + ` "$@"; }` + "\n",
	}
	if err := os.CopyFS(filepath.Join(u.dir, "deploy"), os.DirFS(filepath.Join(lab.Node.Payload, "deploy"))); err != nil {
		t.Fatal(err)
	}
	writer := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(string(data))
	if writer == nil {
		t.Fatal("the page has no pod")
	}
	pod := strings.ReplaceAll(writer[1], "image: busybox", "image: docker.io/local/busybox:1")
	t.Cleanup(func() { u.output("delete", "pod", "writer", "--ignore-not-found", "--timeout=2m") })

	u.play("1. Install")
	lab.WriteFile(t, filepath.Join(u.dir, "writer.yaml"), pod)
	u.play("3. Check it before it runs")
	u.takes(u.play("4. Run it, and measure"))
	u.play("5. See what is in force")
	lab.WriteFile(t, filepath.Join(u.dir, "writer.yaml"), strings.ReplaceAll(pod, "wbps", "wpbs"))
	u.play("6. Make a mistake")
	u.play("7. Clean up")
	r.must("uninstall", "nri-blkio", "--wait", "--timeout", helmTime)
	r.isRemoved()
}

// tutorial is a cluster in which the page is followed.
type tutorial struct {
	*staged
	define string // functions and variables of the page up to here, and what stands in for programs that the node lacks
}

// play runs the commands of a section, and returns what they print. It repeats the last one until that is what the page has.
func (u *tutorial) play(heading string) (printed string) {
	u.Helper()
	section := u.page[heading]
	if section == nil || len(section.commands) == 0 {
		u.Fatalf("section %q of the page: %+v", heading, section)
	}
	stand := strings.NewReplacer("REGISTRY/nri-blkio", strings.TrimSuffix(payload.Image, ":latest"), "image.tag=1", "image.tag=latest")
	last := ""
	for line := range strings.Lines(strings.ReplaceAll(stand.Replace(strings.Join(section.commands, "")), "\\\n", "")) {
		switch {
		case strings.HasPrefix(line, "make image"), strings.HasPrefix(line, "docker push"):
		case regexp.MustCompile(`^([A-Z]+=|[a-z]+\(\))`).MatchString(line):
			u.define += line
		default:
			if last != "" {
				printed += u.must(last)
			}
			last = line
		}
	}
	want := strings.Fields(strings.Join(section.outputs, ""))
	lab.Within(u.T, clusterDeadline, fmt.Sprintf("%q prints what the page has", last), func() error {
		out, err := u.run(u.define + last)
		if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, strings.Join(want, " ")) {
			err = errors.Join(err, fmt.Errorf("%q is not in %s", want, out))
		}
		printed += out
		return err
	})
	u.Logf("%s:\n%s", heading, printed)
	return printed
}

// must runs a command that has to succeed.
func (u *tutorial) must(command string) string {
	u.Helper()
	out, err := u.run(u.define + command)
	if err != nil {
		u.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// takes verifies that what dd reports is the time of 64 MiB at 2 MiB/s.
func (u *tutorial) takes(printed string) {
	u.Helper()
	m := regexp.MustCompile(`copied, ([0-9.]+) seconds`).FindStringSubmatch(printed)
	if m == nil {
		u.Fatalf("dd does not say how long it took: %s", printed)
	}
	if seconds, err := strconv.ParseFloat(m[1], 64); err != nil || seconds < 30 || seconds > 45 {
		u.Errorf("64 MiB at 2 MiB/s took %s s, want about 32", m[1])
	}
}

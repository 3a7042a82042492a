package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// TestTutorial follows docs/tutorial/first-limit.md: it runs the commands of the page, and looks for the output that the
// page has. The node has images, but no registry. So no image is built, and the pod's image has the node's name for busybox.
//
//e2e:proof
func TestTutorial(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(lab.Node.Payload, "docs/tutorial/first-limit.md"))
	if err != nil {
		t.Fatal(err)
	}
	writer := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(string(data))
	if writer == nil {
		t.Fatal("the page has no pod")
	}
	pod := strings.ReplaceAll(writer[1], "image: busybox", "image: docker.io/local/busybox:1")
	r := newChartCluster(t)
	u := &tutorial{
		staged: &staged{cluster: r.cluster, page: sectionsOf(string(data)), dir: t.TempDir()},
		define: "export HOME=" + r.home + "\nhelm() { " + filepath.Join(lab.Node.Payload, payload.Helm) + ` "$@"; }` + "\n",
	}
	if err := os.CopyFS(filepath.Join(u.dir, "deploy"), os.DirFS(filepath.Join(lab.Node.Payload, "deploy"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.output("delete", "pod", "writer", "--ignore-not-found", "--timeout=2m") })

	u.play("1. Install")
	lab.WriteFile(t, filepath.Join(u.dir, "writer.yaml"), pod)
	u.play("3. Check it before it runs")
	u.play("4. Run it, and measure")
	// A tenth is for the kernel's first slices. busybox of the node does not print the time.
	if least := 64 * time.Second / 2 * 9 / 10; u.took < least {
		t.Errorf("64 MiB took %v at 2 MiB/s, want at least %v", u.took, least)
	}
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
	took   time.Duration // of the last command that was run once
	define string        // functions and variables of the page up to here, and those in place of programs that the node lacks
}

var (
	isDefinition = regexp.MustCompile(`^([A-Z]+=|[a-z]+\(\))`)
	percentage   = regexp.MustCompile(`\b[0-9]+%`)
)

// play runs the commands of a section. If the page has output, it repeats the last one until it prints that.
func (u *tutorial) play(heading string) {
	u.Helper()
	section := u.page[heading]
	if section == nil || len(section.commands) == 0 {
		u.Fatalf("section %q of the page: %+v", heading, section)
	}
	onNode := strings.NewReplacer("REGISTRY/nri-blkio", strings.TrimSuffix(payload.Image, ":latest"), "image.tag=1", "image.tag=latest", "\\\n", "")
	last, printed := "", ""
	for line := range strings.Lines(onNode.Replace(strings.Join(section.commands, ""))) {
		switch {
		case strings.HasPrefix(line, "make image"), strings.HasPrefix(line, "docker push"):
		case isDefinition.MatchString(line):
			u.define += line
		default:
			if last != "" {
				printed += u.must(last)
			}
			last = line
		}
	}
	want := words(strings.Join(section.outputs, ""))
	if want == "" {
		printed += u.must(last)
	} else {
		printed += u.awaitOutput(last, want)
	}
	u.Logf("%s:\n%s", heading, printed)
}

// awaitOutput repeats a command until it prints a text. How much of a limit is used differs from run to run.
func (u *tutorial) awaitOutput(command, text string) (out string) {
	u.Helper()
	want := regexp.MustCompile(percentage.ReplaceAllString(regexp.QuoteMeta(text), "[0-9]+%"))
	lab.Within(u.T, clusterDeadline, fmt.Sprintf("%q prints what the page has", command), func() (err error) {
		out, err = u.run(u.define + command)
		if !want.MatchString(words(out)) {
			err = errors.Join(err, fmt.Errorf("%q is not in %s", text, out))
		}
		return err
	})
	return out
}

// words returns a text in one line with single blanks.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// must runs a command that has to succeed.
func (u *tutorial) must(command string) string {
	u.Helper()
	start := time.Now()
	out, err := u.run(u.define + command)
	if u.took = time.Since(start); err != nil {
		u.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

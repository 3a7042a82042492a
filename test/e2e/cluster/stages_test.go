package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

const (
	stagesPage = "docs/how-to/enable-in-stages.md"

	// backDeadline is what the page states for going back, from the answer to its commands on.
	backDeadline = time.Minute

	// editDeadline is for all other edits. The kubelet alone may take 90 s for one.
	editDeadline = 3 * time.Minute
)

// TestStages follows docs/how-to/enable-in-stages.md: it writes the policies of the page, runs its commands, and
// compares what they print with the page. The plugin runs as its DaemonSet, and has the policy from its ConfigMap.
//
//e2e:proof
func TestStages(t *testing.T) {
	if err := lab.ImportImage(t.Context(), "nri-blkio.tar"); err != nil {
		t.Fatal(err)
	}
	s := newStaged(t)

	s.follow("Observe everywhere")
	s.runPods()
	read := s.page["Read what would happen"]
	s.prints(read.commands[0], read.outputs[0])
	s.prints(read.commands[1], read.outputs[1])
	s.await(0, "nothing is limited", nil)

	s.follow("Enforce in one namespace")
	s.await(editDeadline, "team-a alone is limited", podRates{"team-a/web": "20971520"})
	s.prints(read.commands[0], s.page["Enforce in one namespace"].outputs[0])
	s.counts(1, 1, 1)
	s.await(0, "team-b is not limited", podRates{"team-a/web": "20971520"})

	s.follow("Enforce everywhere")
	s.await(editDeadline, "all are limited", podRates{"team-a/web": "20971520", "team-b/db": "52428800", "team-b/import": "20971520"})
	s.counts(2, 1, 0)
	s.rejects("team-b/again", s.annotations["team-b/import"])

	s.follow("Go back")
	answered := time.Now()
	s.await(backDeadline, "no limit is left", nil)
	t.Logf("all limits are removed %v after the answer to the commands", time.Since(answered).Round(100*time.Millisecond))
	s.continues()
	s.container(path.Base("team-b/again"), "app")
	s.counts(0, 2, 2)
	s.hasNoLimits()
}

// podRates are the wbps of pods on the disk of the root filesystem, by NAMESPACE/NAME.
type podRates map[string]string

// staged is a cluster in which the stages of the page are followed.
type staged struct {
	cluster
	page        map[string]*pageSection // by the heading
	dir         string                  // a copy of deploy is there
	annotations map[string]string       // of the pods of the page, by NAMESPACE/NAME; "" for none
	running     map[string]*cri.Container
	refusal     string // the error of team-b/import
}

func newStaged(t *testing.T) *staged {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(lab.Node.Payload, stagesPage))
	if err != nil {
		t.Fatal(err)
	}
	s := &staged{page: sectionsOf(string(data)), dir: t.TempDir(), annotations: map[string]string{}, running: map[string]*cri.Container{}}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+/[a-z-]+)` \\| (?:`([^`]*)`)?").FindAllStringSubmatch(string(data), -1) {
		s.annotations[m[1]] = m[2]
	}
	if m := regexp.MustCompile(`(?m) error: (nri-blkio: .*)$`).FindStringSubmatch(string(data)); m != nil {
		s.refusal = m[1]
	}
	if len(s.annotations) != 3 || s.refusal == "" {
		t.Fatalf("the page has the pods %q, and the error %q", s.annotations, s.refusal)
	}
	if err := os.CopyFS(filepath.Join(s.dir, "deploy"), os.DirFS(filepath.Join(lab.Node.Payload, "deploy"))); err != nil {
		t.Fatal(err)
	}
	s.cluster = startCluster(t)
	stopsCluster(t) // the page's objects stay
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pods:\n%s", s.output("describe", "pods", "--all-namespaces"))
			t.Logf("the plugin:\n%s", s.output("-n", "nri-blkio", "logs", "-l", "app.kubernetes.io/name=nri-blkio", "--tail=80"))
		}
		// By way of the kubelet, so that it unmounts the volumes.
		if out, err := kubectl("", "delete", "daemonsets,pods", "--all", "--all-namespaces", "--timeout=2m"); err != nil {
			t.Errorf("delete the pods: %v: %s", err, out)
		}
	})
	return s
}

// pageSection has the blocks of one section of a page, in their order.
type pageSection struct{ policies, commands, outputs []string }

// sectionsOf returns the sections of a page by their headings. A block of four blanks is of commands if it
// begins with one.
func sectionsOf(text string) map[string]*pageSection {
	sections := map[string]*pageSection{}
	block := regexp.MustCompile("(?m)^## (.*)\n|^```yaml\n((?s:.*?))^```\n|((?:^    .*\n)+)")
	isCommand := regexp.MustCompile(`^((kubectl|sed|for|curl|make) |NODE=|blkio\(\))`)
	at := &pageSection{} // before the first heading
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		lines := strings.TrimPrefix(strings.ReplaceAll("\n"+m[3], "\n    ", "\n"), "\n")
		switch {
		case m[1] != "":
			at = &pageSection{}
			sections[m[1]] = at
		case m[2] != "":
			at.policies = append(at.policies, m[2])
		case isCommand.MatchString(lines):
			at.commands = append(at.commands, lines)
		default:
			at.outputs = append(at.outputs, lines)
		}
	}
	return sections
}

// follow writes the policy of a section, and runs its commands.
func (s *staged) follow(heading string) {
	s.Helper()
	section := s.page[heading]
	if section == nil || len(section.commands) != 1 {
		s.Fatalf("section %q of the page: %+v", heading, section)
	}
	for _, policy := range section.policies {
		lab.WriteFile(s.T, filepath.Join(s.dir, "deploy/kubernetes/policy.yaml"), policy)
	}
	out, err := s.run("set -e\n" + section.commands[0])
	if err != nil {
		s.Fatalf("%s: %v\n%s", section.commands[0], err, out)
	}
	s.Logf("%s:\n%s", heading, out)
}

// curl stands in for the program, which the node does not have.
const curl = `curl() { busybox wget -q -O - "$2"; }` + "\n"

// run runs commands of the page where deploy is, and returns what they print.
func (s *staged) run(script string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), clusterDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", curl+script)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "KUBECONFIG=/etc/kubernetes/admin.conf")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// prints waits until commands print each line of want, among others and with any widths of columns. Their exit
// status does not matter, because that of status is 1 while it has errors to report.
func (s *staged) prints(commands, want string) {
	s.Helper()
	lab.Within(s.T, editDeadline, "the commands print what the page has", func() error {
		out, _ := s.run(commands)
		got := linesOf(out)
		for _, line := range linesOf(want) {
			if !slices.Contains(got, line) {
				return fmt.Errorf("%q is not printed:\n%s", line, out)
			}
		}
		return nil
	})
}

// linesOf returns the lines of a text with single blanks.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// counts waits until the metric has these numbers of containers.
func (s *staged) counts(limited, failed, observed int) {
	s.Helper()
	const format = "nri_blkio_containers{state=%q} %d\n"
	want := fmt.Sprintf(format+format+format, "limited", limited, "failed", failed, "observed", observed)
	s.prints(s.page["Read what would happen"].commands[1], want)
}

// runPods runs the pods of the page. All of them start, also the one whose request is out of bounds.
func (s *staged) runPods() {
	s.Helper()
	for _, namespace := range []string{"team-a", "team-b"} {
		s.kubectl("", "create", "namespace", namespace)
	}
	for name, annotation := range s.annotations {
		s.create(name, annotation)
	}
	for name := range s.annotations {
		s.running[name] = s.container(path.Base(name), "app")
	}
}

// create makes a pod, NAMESPACE/NAME, with an annotation for all of its containers.
func (s *staged) create(name, annotation string) {
	s.Helper()
	namespace, pod := path.Split(name)
	annotations := ""
	if annotation != "" {
		annotations = fmt.Sprintf("%scontainers: %q", lab.Limits, annotation)
	}
	s.kubectl(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s
  annotations: {%s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: %s, imagePullPolicy: Never, args: [sleep, --seconds, %q]}
`, pod, path.Clean(namespace), annotations, cri.Image, lab.Forever), "apply", "-f", "-")
}

// await waits until the containers of the page's pods, and the pods, have these limits and no others. With 0 it
// does not wait.
func (s *staged) await(limit time.Duration, what string, want podRates) {
	s.Helper()
	check := func() error {
		var errs []error
		for name, k := range s.running {
			on := lab.Disks{}
			if rate := want[name]; rate != "" {
				on["vda"] = "wbps=" + rate
			}
			errs = append(errs, lab.CheckIOMax(k.Cgroup, on), lab.CheckIOMax(path.Dir(k.Cgroup), on))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("%w\nthe policy in the pods of the plugin: %q", err, mountedModes())
		}
		return nil
	}
	if limit > 0 {
		lab.Within(s.T, limit, what, check)
	} else if err := check(); err != nil {
		s.Errorf("%s: %v", what, err)
	}
}

// mountedModes returns the modes in the policy files that the kubelet has written into the pods: they show how
// far an edit has come.
func mountedModes() (modes []string) {
	files, _ := filepath.Glob("/var/lib/kubelet/pods/*/volumes/kubernetes.io~configmap/policy/policy.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			modes = append(modes, err.Error())
		}
		modes = append(modes, regexp.MustCompile(`mode: \w+`).FindAllString(string(data), -1)...)
	}
	return modes
}

// rejects creates a pod, and waits until the API server has the error of the page as the reason why it waits.
func (s *staged) rejects(name, annotation string) {
	s.Helper()
	s.create(name, annotation)
	namespace, pod := path.Split(name)
	lab.Within(s.T, clusterDeadline, name+" is rejected", func() error {
		out := s.output("-n", path.Clean(namespace), "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[*].state.waiting.message}")
		if !strings.HasSuffix(strings.TrimSpace(out), s.refusal) {
			return fmt.Errorf("it waits for %q, want %q", out, s.refusal)
		}
		return nil
	})
}

// continues checks that no container of the page's pods was restarted.
func (s *staged) continues() {
	s.Helper()
	for name, before := range s.running {
		if now := s.container(path.Base(name), "app"); now.ID != before.ID {
			s.Errorf("the container of %s was %s and is %s", name, before.ID, now.ID)
		}
	}
}

// hasNoLimits checks that no cgroup of any pod has a limit.
func (s *staged) hasNoLimits() {
	s.Helper()
	// "/kubepods.slice/..." or "/kubepods/..."
	top, _, _ := strings.Cut(strings.Trim(s.running["team-a/web"].Cgroup, "/"), "/")
	seen := 0
	err := filepath.WalkDir(filepath.Join(cgroup.Root, top), func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a cgroup that was removed meanwhile
		}
		if err != nil || entry.Name() != "io.max" {
			return err
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if seen++; len(text) > 0 {
			s.Errorf("%s has %q", file, text)
		}
		return err
	})
	if err != nil || seen < 2*len(s.running) {
		s.Errorf("%d files io.max below %s: %v", seen, top, err)
	}
}

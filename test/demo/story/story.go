package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

const (
	enforcing = time.Minute     // for an edit of the policy to be in force, at most
	starting  = 3 * time.Second // until fio reads, on an emulated node
)

// class is what the operator adds to the policy.
const class = `bursts: ["* wbps=20Mi"]
classes:
  bronze: {limits: ["* ` + noise.Limit + `"]}
rules:
- name: batch
  match: {namespaces: [batch]}
  class: bronze
`

// mistake is the value of an annotation with a typing mistake, and hint the end of the error that it gets.
const (
	annotationKey = "limits.blkio.noderesource.dev/containers"
	mistake       = "/data wpbs=10Mi"
	hint          = `unknown key "wpbs" (did you mean "wbps"?)`
)

// connections are what the victim does: four threads that read 4 KiB at random, and wait for each read.
func connections() []string {
	return []string{"--rw=randread", "--direct=1", "--ioengine=psync", "--numjobs=4"}
}

// story is a victim and its neighbour on one disk, on a node where the plugin runs. Nothing is removed, because
// the node ends with the story.
type story struct {
	client *cri.Client
	disk   noise.Disk
	out    io.Writer // what the demo is for
	steps  io.Writer // progress
}

func (s *story) tell(ctx context.Context) error {
	fmt.Fprintln(s.steps, "demo: starting two pods")
	victim, err := s.pod(ctx, "shop", "db", nil)
	if err != nil {
		return err
	}
	neighbour, err := s.pod(ctx, "batch", "import", nil)
	if err != nil {
		return err
	}
	if _, err := s.reads(ctx, victim, "1. Four threads of the pod shop/db read from a disk that does 1,500 operations and 60 MiB a second:"); err != nil {
		return err
	}
	if _, err := s.disk.Neighbour(neighbour.Cgroup); err != nil {
		return err
	}
	time.Sleep(noise.Settle)
	beside, err := s.reads(ctx, victim, "2. The pod batch/import begins to write to that disk, and to read from it:")
	if err != nil {
		return err
	}
	if err := s.why(ctx, victim); err != nil {
		return err
	}
	if err := s.limit(ctx, neighbour); err != nil {
		return err
	}
	after, err := s.reads(ctx, victim, "5. So the pod shop/db has its disk back:")
	if err != nil {
		return err
	}
	return errors.Join(checkReads(beside, after), s.top(ctx, victim), s.burst(ctx), s.refused(ctx))
}

// pod runs a pod with one container that has the disk at /data, and does nothing itself.
func (s *story) pod(ctx context.Context, namespace, name string, annotations map[string]string) (*cri.Container, error) {
	pod, err := s.client.RunPod(ctx, cri.PodConfig{Namespace: namespace, Name: name, QoS: cri.Burstable, Annotations: annotations})
	if err != nil {
		return nil, err
	}
	// Without a limit of memory, the neighbour's dirty pages slow down all writers of the node.
	return pod.Run(ctx, cri.ContainerConfig{
		Name: "app", Args: []string{"sleep"}, Memory: 96 * noise.MiB, Mounts: []cri.Mount{{Host: sharedDir, Path: "/data"}},
	})
}

// reads measures the victim for some seconds.
func (s *story) reads(ctx context.Context, victim *cri.Container, title string) (noise.Result, error) {
	fmt.Fprintf(s.out, "\n%s\n", title)
	fmt.Fprintln(s.steps, "demo: measuring shop/db for 5 seconds")
	got, err := s.disk.Victim(ctx, victim.Cgroup, connections()...)
	if err != nil {
		return got, err
	}
	fmt.Fprintln(s.out, "   "+resultText(got))
	return got, nil
}

func resultText(r noise.Result) string {
	return fmt.Sprintf("%.0f reads a second, 99 %% of them within %.*f ms", r.Rate, decimals(r.P99), r.P99)
}

// decimals returns how many decimals a number of milliseconds needs to be told apart from others.
func decimals(ms float64) int {
	if ms < 10 {
		return 1
	}
	return 0
}

// checkReads returns an error unless the class helps the victim.
func checkReads(beside, after noise.Result) error {
	if after.Rate < 2*beside.Rate {
		return fmt.Errorf("shop/db reads %.0f/s with the class and %.0f/s without, want at least twice as much", after.Rate, beside.Rate)
	}
	return nil
}

// why asks why the victim is slow.
func (s *story) why(ctx context.Context, victim *cri.Container) error {
	fmt.Fprintln(s.out, "\n3. Why is it slow?")
	fmt.Fprintln(s.steps, "demo: running nri-blkio why for 10 seconds")
	text, err := s.showReading(ctx, victim, "why", "shop/db")
	if err != nil {
		return err
	}
	return checkWhy(text)
}

// top looks at both pods.
func (s *story) top(ctx context.Context, victim *cri.Container) error {
	fmt.Fprintln(s.out, "\n6. What does each pod do now?")
	fmt.Fprintln(s.steps, "demo: running nri-blkio top for 5 seconds")
	text, err := s.showReading(ctx, victim, "top", "--once")
	if err != nil {
		return err
	}
	return checkTop(text)
}

// showReading runs a command of nri-blkio while the victim reads.
func (s *story) showReading(ctx context.Context, victim *cri.Container, args ...string) (string, error) {
	reading := make(chan error, 1)
	go func() {
		_, err := s.disk.Victim(ctx, victim.Cgroup, append(connections(), "--runtime=20")...)
		reading <- err
	}()
	time.Sleep(starting)
	text, err := s.show(ctx, args...)
	return text, errors.Join(err, <-reading)
}

// checkWhy returns an error unless the first line of why names the neighbour.
func checkWhy(text string) error {
	if line, _, _ := strings.Cut(text, "\n"); !strings.Contains(line, "batch/import") {
		return fmt.Errorf("why does not name batch/import: %s", line)
	}
	return nil
}

// heldRow is the neighbour's row in the list of top: its limit, and the part of the time that the limit held it.
var heldRow = regexp.MustCompile(`(?m)^batch/import +app .*% [a-z]+ +(\d+) `)

// checkTop returns an error unless top says that the neighbour's limit holds it for half of the time, and lists the victim.
func checkTop(text string) error {
	row := heldRow.FindStringSubmatch(text)
	if row == nil || !strings.Contains(text, "\nshop/db ") {
		return fmt.Errorf("top does not list shop/db, and batch/import with a limit:\n%s", text)
	}
	if held, err := strconv.Atoi(row[1]); err != nil || held < 50 {
		return fmt.Errorf("the limit of batch/import holds it for %s %% of the time, want 50 or more:\n%s", row[1], text)
	}
	return nil
}

// show runs a command of nri-blkio, and prints it with its output.
func (s *story) show(ctx context.Context, args ...string) (string, error) {
	text, err := command(ctx, program, args...)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(s.out, "   $ nri-blkio %s\n%s", strings.Join(args, " "), indent(text))
	return text, nil
}

func indent(text string) string {
	return "   " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ") + "\n"
}

// limit adds the class to the policy, and waits until the neighbour's limit is in force.
func (s *story) limit(ctx context.Context, neighbour *cri.Container) error {
	fmt.Fprintf(s.out, "\n4. The operator adds a class for the namespace batch to the node policy, and room for bursts. Nothing is restarted:\n%s", indent(class))
	fmt.Fprintln(s.steps, "demo: waiting until the limit is in force")
	if err := os.WriteFile(policyFile, []byte(noise.PolicyHead+class), 0o644); err != nil {
		return err
	}
	if err := s.awaitMax(ctx, neighbour.Cgroup, ""); err != nil {
		return err
	}
	if _, err := s.show(ctx, "status", "--pod", "batch/import"); err != nil {
		return err
	}
	time.Sleep(noise.Settle)
	return nil
}

// awaitMax waits until a cgroup has a limit on the disk that contains text.
func (s *story) awaitMax(ctx context.Context, dir, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, enforcing, fmt.Errorf("no limit %s in force after %v", text, enforcing))
	defer cancel()
	for {
		limits, err := cgroup.Dir(dir).IOMax()
		if err != nil {
			return err
		}
		if line := limits[s.disk.Number]; line != "" && strings.Contains(line, text) {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refused runs a pod with a mistake in an annotation, which must fail.
func (s *story) refused(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n8. A pod has a typing mistake in the annotation %s: %q. It is not created:\n", annotationKey, mistake)
	_, err := s.pod(ctx, "batch", "typo", map[string]string{annotationKey: mistake})
	line, checkErr := checkRefusal(err)
	if checkErr != nil {
		return checkErr
	}
	fmt.Fprintln(s.out, indent(line))
	return nil
}

// checkRefusal returns the plugin's part of the runtime's error.
func checkRefusal(err error) (string, error) {
	if err == nil {
		return "", fmt.Errorf("a pod with %q was created", mistake)
	}
	_, line, ok := strings.Cut(err.Error(), "nri-blkio: ")
	if !ok || !strings.Contains(line, hint) {
		return "", fmt.Errorf("the error of a pod with %q has no hint: %w", mistake, err)
	}
	return "nri-blkio: " + line, nil
}

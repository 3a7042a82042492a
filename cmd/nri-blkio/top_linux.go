package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/report"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

const topLong = `Show what each container does on each disk, against its limit, and how much of the time it
waits. The list is renewed until it is interrupted. Without a terminal, and with -o json or
yaml, it is written once.

A row has a container and a disk, or a pod that has a limit of its own there:
  READ, WRITE  bytes per second
  OPS          operations per second
  LIMIT        how much of the limit is used, of the one that is used the most
  %HELD        how much of the time I/O was held by the limit of the container or of its
               pod; if reads and writes are held by turns, it is at least that
  %OTHER       time of threads that wait for something else: the disk, a neighbour, a
               journal, dirty pages, another owner's data. Two threads that wait all the
               time are 200
  %PSI         I/O pressure: how much of the time some thread waited for I/O, on all disks
"nri-blkio why" names the reasons for one pod.

It works for any pod of the node, with limits or without, whether the plugin runs or not.
BPF programs count the waits meanwhile, as for "nri-blkio why". Without BPF, %HELD and
%OTHER are not known ("-"), and the first line says why.`

type topOptions struct {
	pods           podsFlags
	disk, sort     string
	delay          time.Duration
	once, problems bool
	output         output
}

func (a *app) topCommand() *cobra.Command {
	o := topOptions{delay: 5 * time.Second}
	keys := why.SortKeys()
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what containers do on their disks, and how much they wait",
		Long:  topLong,
		Example: `  nri-blkio top
  nri-blkio top --problems           # only what waits
  nri-blkio top -n prod --sort held
  nri-blkio top --once -d 10s        # one list, of ten seconds`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context(), &o) },
	}
	o.pods.add(a, cmd)
	f := cmd.Flags()
	f.StringVar(&o.disk, "disk", "", "only this disk")
	f.StringVar(&o.sort, "sort", keys[0], "the largest first by "+strings.Join(keys[:len(keys)-1], ", ")+"; or by "+keys[len(keys)-1])
	f.BoolVar(&o.problems, "problems", false, "only what waits: %HELD, %OTHER or %PSI is 1 or more")
	f.DurationVarP(&o.delay, "delay", "d", o.delay, "measure for this long each time")
	f.BoolVar(&o.once, "once", false, "write one list")
	a.opts.addEndpointFlag(cmd, endpointForNames)
	o.output.add(cmd)
	completes(cmd, "sort", keys...)
	_ = cmd.RegisterFlagCompletionFunc("disk", a.completed(recordedDisks)) // it was defined above
	return cmd
}

func (a *app) top(ctx context.Context, o *topOptions) (err error) {
	if err := checkMeasuring("--delay", o.delay); err != nil {
		return err
	}
	if !slices.Contains(why.SortKeys(), o.sort) {
		return usage(fmt.Errorf("--sort: unknown key %q (write %s)", o.sort, strings.Join(why.SortKeys(), ", ")))
	}
	h, err := a.host()
	if err != nil {
		return err
	}
	defer h.Close()
	names := podNames{app: a}
	names.ask(ctx)
	w, err := why.NewWatch(why.Node{Cgroups: h.Cgroups, Pods: names.pods, Disk: h.DiskName, Btrfs: h.Sysfs.HasBtrfs, Attach: a.attach})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	once := o.once || !a.screen(o.output).isTerminal()
	delay := o.delay
	if !once {
		delay = min(delay, time.Second) // soon for the first time
	}
	for ; ; delay = o.delay {
		reminder.Sleep(ctx, delay)
		if ctx.Err() != nil {
			return nil
		}
		m, err := w.Next()
		if err != nil {
			return err
		}
		top := why.ExplainAll(m)
		if names.isDue(&top) {
			names.ask(ctx)
			w.Name(names.pods)
		}
		filter, err := o.pods.filter(ctx, a)
		if err != nil {
			return err
		}
		if err := a.showTop(o, filter, &top, names.err); err != nil || once {
			return err
		}
	}
}

func (a *app) showTop(o *topOptions, filter inspect.Filter, top *why.Top, namesErr error) error {
	if namesErr != nil {
		top.Unknown = append(top.Unknown, "names of pods without limits: "+namesErr.Error())
	}
	top.Rows = slices.DeleteFunc(top.Rows, func(r why.Row) bool {
		return !filter.Matches(r.Namespace, r.Pod) || o.disk != "" && r.Disk.Disk != o.disk || o.problems && !r.IsWaiting()
	})
	top.Sort(o.sort)
	s := a.screen(o.output)
	if o.once {
		s.height = 0
	}
	var out bytes.Buffer
	if err := o.output.write(&out, top, func(out *bytes.Buffer) { report.WriteTop(out, top, s.width) }); err != nil {
		return err
	}
	return s.show(out.Bytes())
}

// podNames has the pods of the runtime.
type podNames struct {
	*app
	pods  []runtimeconfig.Pod
	err   error
	asked time.Time
}

func (n *podNames) ask(ctx context.Context) {
	n.opts.runtime.HostRoot = n.opts.hostRoot
	n.pods, n.err = n.opts.runtime.Pods(ctx)
	n.asked = time.Now()
}

// isDue reports whether the runtime should be asked again, because a pod has no name. That is at most once in ten seconds.
func (n *podNames) isDue(top *why.Top) bool {
	return time.Since(n.asked) > 10*time.Second && slices.ContainsFunc(top.Rows, func(r why.Row) bool { return r.Pod == "" })
}

// screen shows texts one after another. On a terminal each of them replaces the last one.
type screen struct {
	out           io.Writer
	width, height int // 0 if the output is not a terminal
}

// screen returns the standard output, with its present size. A document, as JSON, has none, so it is written whole.
func (a *app) screen(o output) screen {
	s := screen{out: a.stdout}
	if f, ok := a.stdout.(*os.File); ok && !o.isDocument() && term.IsTerminal(int(f.Fd())) {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil {
			s.width, s.height = width, height
		}
	}
	return s
}

func (s screen) isTerminal() bool { return s.height > 0 }

// show writes a text. On a terminal it cuts what does not fit, and says so.
func (s screen) show(text []byte) error {
	if s.isTerminal() {
		const home, noWrap, wrap, eraseLine, eraseBelow = "\x1b[H", "\x1b[?7l", "\x1b[?7h", "\x1b[K", "\x1b[J"
		lines := bytes.SplitAfter(text, []byte("\n"))
		if rest := bytes.Count(text, []byte("\n")) - (s.height - 1); rest > 0 {
			kept := max(s.height-2, 0)
			lines = append(lines[:kept], fmt.Appendf(nil, "and %d more lines: enlarge the terminal, or use --once\n", rest+1))
		}
		text = bytes.Join(lines, nil)
		text = []byte(home + noWrap + string(bytes.ReplaceAll(text, []byte("\n"), []byte(eraseLine+"\n"))) + eraseBelow + wrap)
	}
	_, err := s.out.Write(text)
	return err
}

package node_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// processes are the commands of the operator: the policy, and the process of the plugin.
func processes() map[string]command {
	return map[string]command{
		"policy FILE|TEXT": func(w *world, _ bool, args []string) { // Reload, or the policy of the first process
			w.readPolicy(args[0])
			if w.node != nil {
				w.node.Reload(w.policy)
			}
		},
		"policy-during FILE|TEXT LINE": func(w *world, _ bool, args []string) { // Reload within the call that logs a line
			w.readPolicy(args[0])
			n, pol := w.node, w.policy
			w.mu.Lock()
			defer w.mu.Unlock()
			w.during[args[1]] = func() { n.Reload(pol) }
		},
		"panic-during LINE": func(w *world, _ bool, args []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.during[args[0]] = func() { panic(errPanic) }
		},
		"configure real-mounts|cri-o|lists-stopped|recovery|no-exit-watch|memory [BYTES]": (*world).configure,
		"down": func(w *world, _ bool, args []string) { w.end(); w.isDown = true },
		"up": func(w *world, _ bool, args []string) {
			w.up()
		},
		"restart [--policy FILE|TEXT] [--told] [--unlisted|--empty]": (*world).restart,
		"disconnect": func(w *world, _ bool, args []string) {
			w.connected = false
		},
		"pass [COUNT]": func(w *world, _ bool, args []string) {
			count := 1
			if len(args) > 0 {
				count, _ = strconv.Atoi(args[0])
			}
			for range count {
				time.Sleep(resync)
				synctest.Wait()
			}
		},
		"lack FILE": func(w *world, _ bool, args []string) { // the kernel has no such control file; the plugin starts again
			w.kernel.Lack(args[0])
			w.restart(false, nil)
		},
		"sleep DURATION": func(w *world, _ bool, args []string) {
			d, err := time.ParseDuration(args[0])
			w.ts.Check(err)
			time.Sleep(d)
		},
		"forget-notes": func(w *world, _ bool, args []string) {
			w.forget()
			w.kernel.Writes()
		},
	}
}

// nodeDisks are the commands of the disks and the mount table.
func nodeDisks() map[string]command {
	return map[string]command{
		"break disk [PATH] [hang]": func(w *world, _ bool, args []string) { w.fault(args, true) },
		"heal disk [PATH] [hang]":  func(w *world, _ bool, args []string) { w.fault(args, false) },
		"mount PATH DISK...": func(w *world, _ bool, args []string) {
			w.disks.Mount(args[0], args[1:]...)
		},
		"stack DISK [DISK]...": func(w *world, _ bool, args []string) { // a device of others; "file" before them is a loop device
			w.disks.Stack(args[0], args[1:]...)
		},
		"unmount PATH": func(w *world, _ bool, args []string) {
			w.disks.Unmount(args[0])
		},
		"mounts-changed": func(w *world, _ bool, args []string) { w.node.MountsChanged() },
		"disks-changed":  func(w *world, _ bool, args []string) { w.node.DisksChanged() },
		"actual POD CONTAINER DESTINATION SOURCE": func(w *world, _ bool, args []string) { // where a mount leads to in the container, after "configure real-mounts"
			c := w.mustContainer(args[0], args[1])
			c.actual[args[2]] = args[3]
			w.show(func(v *views) { v.mounts[c.pid] = c.processMounts() })
		},
		"unplug DISK": func(w *world, _ bool, args []string) { // for good, or until "plug"
			w.kernel.Unplug(w.mustDisk(args[0]).Dev)
			w.plug = w.disks.Unplug(args[0])
			w.node.DisksChanged()
		},
		"plug": func(w *world, _ bool, _ []string) { // the last one that was unplugged
			w.plug()
			w.node.DisksChanged()
		},
		"replug DISK": func(w *world, _ bool, args []string) {
			w.kernel.Unplug(w.mustDisk(args[0]).Dev)
		},
	}
}

// nodeLayers are the commands of the writable layers.
func nodeLayers() map[string]command {
	return map[string]command{
		"layers [HANDLER=]DIRECTORY|unknown|none...": func(w *world, _ bool, args []string) { // where the runtime stores writable layers, which it tells when it registers
			w.layers = inventory.Layers{Handlers: map[string]inventory.Layer{}}
			for _, arg := range args {
				handler, dir, isOf := strings.Cut(arg, "=")
				if !isOf {
					dir = arg
				}
				of := inventory.Layer{Dir: dir}
				switch dir {
				case "unknown":
					of = inventory.Layer{Unknown: "not asked yet"}
				case "none":
					of = inventory.Layer{Reason: "it has a device of its own"}
				}
				if isOf {
					w.layers.Handlers[handler] = of
				} else {
					w.layers.Default = of
				}
			}
			w.show(func(v *views) { v.inUse = w.layers })
		},
		"overlays DIRECTORY": func(w *world, _ bool, args []string) { // where containers really have their writable layers, after "configure real-mounts"
			w.show(func(v *views) { v.upper = args[0] })
		},
		"roots PATH": func(w *world, _ bool, args []string) { // where the roots of containers really are, if they are no overlays
			w.show(func(v *views) { v.root, v.upper = args[0], "" })
		},
		"register": func(w *world, _ bool, args []string) { // the runtime has restarted, and registers the plugin again
			w.up()
			_ = within(func(ctx context.Context) error { w.node.Registered(ctx, "containerd", "v2", deadline); return nil })
		},
	}
}

// kernel are the commands of the cgroups: what other programs write, and what the kernel counts.
func kernel() map[string]command {
	return map[string]command{
		"vanish POD [CONTAINER]": func(w *world, _ bool, args []string) { // a cgroup is removed without an event
			cgroup, _ := w.cgroupOf(args)
			w.kernel.Empty(cgroup)
			synctest.Wait()
			w.kernel.Remove(cgroup)
		},
		"drift POD [CONTAINER] DISK|weight KEY=VALUE...": (*world).drift,
		"use POD [CONTAINER] DISK...": func(w *world, _ bool, args []string) { // the counters of a cgroup
			cgroup, rest := w.cgroupOf(args)
			text := ""
			for _, name := range rest {
				text += w.mustDisk(name).Dev.String() + " rbytes=" + strconv.FormatUint(inventory.MinUsage, 10) + " wbytes=0 rios=9 wios=9 dbytes=0 dios=0\n"
			}
			w.kernel.Replace(cgroup, "io.stat", text)
		},
		"file POD [CONTAINER] NAME TEXT": func(w *world, _ bool, args []string) { // a file of a cgroup
			cgroup, rest := w.cgroupOf(args)
			w.kernel.Replace(cgroup, rest[0], rest[1]+"\n")
		},
		"fail-watch": func(w *world, _ bool, args []string) {
			w.kernel.FailWatch(errors.New("no inotify"))
		},
		"clear POD [CONTAINER]":   cleared((*enforce.Clearer).Clear),
		"unclear POD [CONTAINER]": cleared((*enforce.Clearer).Undo),
		"dirty POD BYTES [IN-WRITEBACK]": func(w *world, _ bool, args []string) { // bytes that a pod has left to write
			underWay := "0"
			if len(args) > 2 {
				underWay = args[2]
			}
			w.kernel.Replace(w.mustPod(args[0]).cgroup, "memory.stat", "file_dirty "+args[1]+"\nfile_writeback "+underWay+"\n")
		},
		"attribute POD [CONTAINER] NAME VALUE": func(w *world, _ bool, args []string) { // another part of the program writes one
			cgroup, rest := w.cgroupOf(args)
			w.ts.Check(w.tree().Cgroup(cgroup).WriteXattr(rest[0], []byte(rest[1])))
		},
	}
}

// cleared is a command of an operator.
func cleared(of func(*enforce.Clearer, cgroupfs.Cgroup, *record.Record) ([]string, error)) command {
	return func(w *world, _ bool, args []string) {
		cgroup, _ := w.cgroupOf(args)
		_, err := of(&enforce.Clearer{}, w.tree().Cgroup(cgroup), w.readRecord(cgroup))
		w.ts.Check(err)
	}
}

// readPolicy reads a policy from a file of the script, or from the argument itself.
func (w *world) readPolicy(text string) {
	if strings.HasSuffix(text, ".yaml") {
		text = w.ts.ReadFile(text)
	}
	pol, err := policy.ParseFile(policyText(text))
	w.ts.Check(err)
	w.policy = pol
}

// configure sets the configuration of the next process.
func (w *world) configure(_ bool, args []string) {
	switch args[0] {
	case "real-mounts":
		w.realMounts = true
	case "cri-o":
		w.isCRIO = true
	case "recovery":
		w.isRecovering = true
	case "lists-stopped":
		w.listsStopped = true
	case "no-exit-watch":
		w.isUnwatched = true
	case "memory":
		w.nodeMemory, _ = strconv.ParseUint(args[1], 10, 64)
	default:
		w.ts.Fatalf("unknown setting %s", args[0])
	}
}

// restart replaces the process of the plugin: "--policy FILE|TEXT", and "--told" if the documents are there before the
// runtime lists what runs. Other documents are told by "tell". "--unlisted" leaves the list to "up", and after "--empty"
// it has nothing.
func (w *world) restart(_ bool, args []string) {
	w.end()
	told, isUnlisted, isEmpty := false, false, false
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--policy":
			i++
			w.readPolicy(args[i])
		case "--told":
			told = true
		case "--unlisted":
			isUnlisted = true
		case "--empty":
			isEmpty = true
		default:
			w.ts.Fatalf("unknown option %s", args[i])
		}
	}
	w.begin()
	for _, name := range w.order {
		if told {
			w.pods[name].tell()
		}
	}
	switch {
	case isEmpty:
		w.connected = true
		w.node.Synchronize(nil, nil)
	case !isUnlisted:
		w.up()
	}
}

// fault breaks or heals something of the node.
func (w *world) fault(args []string, breaks bool) {
	hangs := len(args) > 2 && args[len(args)-1] == "hang"
	fail := func(err error) error {
		if breaks {
			return err
		}
		return nil
	}
	gates, place := &w.disks.Gates, ""
	switch args[0] {
	case "processes":
		w.show(func(v *views) {
			if v.unseen = nil; breaks && len(args) > 1 {
				v.unseen = storage.ErrNoProcess
			} else if breaks {
				v.unseen = errors.New("input/output error")
			}
		})
		return
	case "cgroups":
		w.kernel.Away(breaks)
		return
	case "swaps":
		w.disks.BreakSwaps(fail(errors.New("no swaps")))
		return
	case "mounts":
		w.disks.BreakTable(fail(errors.New("no mounts")))
		return
	case "disk":
		if place = args[1]; !hangs && breaks {
			w.disks.Break(place, errors.New("input/output error"))
		}
	case "runtime", "sync":
		rest, last := args[:len(args)-1], args[len(args)-1]
		if hangs = last != "fail" && last != "panic"; hangs {
			rest = args
		}
		if place = strings.Join(rest, " "); !hangs {
			w.fail(place, fail(map[string]error{"fail": errors.New("no answer"), "panic": errPanic}[last]))
		}
	case "writes":
		rest := args[1:]
		if hangs {
			rest = args[1 : len(args)-1]
		}
		gates = &w.kernel.Gates
		if place, _ = w.cgroupOf(rest); !hangs {
			w.kernel.Fail(place, fail(unix.EIO))
		}
	case "attributes":
		w.kernel.FailAttributes(w.mustPod(args[1]).cgroup, fail(unix.ENOSPC))
		return
	default:
		w.ts.Fatalf("cannot break %s", args[0])
	}
	if breaks && hangs {
		gates.Hang(place)
	} else {
		gates.Answer(place)
	}
}

// drift is another program that writes limits, or a weight.
func (w *world) drift(_ bool, args []string) {
	cgroup, rest := w.cgroupOf(args)
	if rest[0] == "weight" {
		w.kernel.Replace(cgroup, "io.weight", "default "+rest[1]+"\n")
		return
	}
	var line []string
	for _, pair := range rest[1:] {
		key, text, _ := strings.Cut(pair, "=")
		amount := text
		if text != "max" {
			k, _ := blkio.ParseKey(blkio.IOMax, key)
			amount = strconv.FormatUint(uint64(w.amount(k, text)), 10)
		}
		line = append(line, key+"="+amount)
	}
	w.ts.Check(w.kernel.SetLimits(cgroup, w.mustDisk(rest[0]).Dev.String()+" "+strings.Join(line, " ")))
}

func (w *world) mustDisk(name string) blkio.Disk {
	disk, found := w.disks.Disk(name)
	if !found {
		w.ts.Fatalf("unknown disk %s", name)
	}
	return disk
}

func (w *world) table() fakenode.MountTable { return fakenode.MountTable{Disks: w.disks} }

// cgroupOf returns the cgroup of POD [CONTAINER], and the other arguments.
func (w *world) cgroupOf(args []string) (cgroup string, rest []string) {
	p := w.mustPod(args[0])
	if len(args) > 1 {
		if c := p.containerNamed(args[1]); c != nil {
			return c.cgroup, args[2:]
		}
	}
	return p.cgroup, args[1:]
}

// cloneMap never returns nil.
func cloneMap(m map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	return out
}

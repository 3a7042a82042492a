package node_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// written are the assertions about cgroups, OCI specs and records.
func written() map[string]command {
	return map[string]command{
		"iomax POD [CONTAINER] none|DISK [KEY=VALUE]...": func(w *world, _ bool, args []string) {
			cgroup, want := w.cgroupOf(args)
			w.same("io.max of "+strings.Join(args[:len(args)-len(want)], " "), w.limits(cgroup), w.canonical(want))
		},
		"weight POD [CONTAINER] WEIGHT": func(w *world, _ bool, args []string) {
			cgroup, want := w.cgroupOf(args)
			got, err := w.kernel.Read(cgroup, "io.weight")
			w.ts.Check(err)
			w.same("io.weight", got, "default "+want[0])
		},
		"spec POD CONTAINER none|DISK [KEY=VALUE]...": func(w *world, _ bool, args []string) {
			c := w.mustContainer(args[0], args[1])
			limits, err := blkio.ParseIOMax(c.unified[blkio.IOMax])
			w.ts.Check(err)
			w.same("io.max of the OCI spec", w.format(limits), w.canonical(args[2:]))
		},
		"spec-file POD CONTAINER FILE TEXT|none": func(w *world, _ bool, args []string) {
			w.same(args[2]+" of the OCI spec", cmp.Or(w.mustContainer(args[0], args[1]).unified[args[2]], "none"), args[3])
		},
		"has-file POD [CONTAINER] NAME TEXT": func(w *world, _ bool, args []string) {
			cgroup, rest := w.cgroupOf(args)
			got, err := w.kernel.Read(cgroup, rest[0])
			w.ts.Check(err)
			w.same(rest[0], got, rest[1])
		},
		"! record POD [CONTAINER] [TEXT]...": func(w *world, neg bool, args []string) {
			cgroup, texts := w.cgroupOf(args)
			w.find("record", neg, w.recordOf(cgroup), texts)
		},
		"wrote [none] [POD|POD/CONTAINER]...": func(w *world, _ bool, args []string) { // the writes since the last "wrote", of these cgroups in this order
			w.same("writes", strings.Join(w.written(), "\n"), strings.TrimSuffix(strings.Join(args, "\n"), "none"))
		},
		"has-attribute POD [CONTAINER] NAME VALUE|none": func(w *world, _ bool, args []string) {
			cgroup, rest := w.cgroupOf(args)
			got, err := w.tree().Cgroup(cgroup).ReadXattr(rest[0])
			w.ts.Check(err)
			w.same(rest[0], cmp.Or(string(got), "none"), rest[1])
		},
	}
}

// on names disks as "@vda@vdb".
func (w *world) on(disks []blkio.Disk) (out string) {
	for _, disk := range disks {
		out += "@" + w.disks.Name(disk.Dev)
	}
	return out
}

// told are the assertions about what the plugin tells. TEXT is a part of a line; "-count=N" asks for N such lines.
func told() map[string]command {
	return map[string]command{
		"! event [-count=N] [-distinct=N] POD REASON [TEXT]...": func(w *world, neg bool, args []string) {
			w.find("event", neg, w.told(&w.events), args)
		},
		"! problem TEXT...": func(w *world, neg bool, args []string) { w.find("problem", neg, []string{w.node.Problem()}, args) },
		"! log [-count=N] TEXT...": func(w *world, neg bool, args []string) {
			w.find("log", neg, w.told(&w.lines), args)
		},
		"! synced [-count=N] PATH": func(w *world, neg bool, args []string) {
			w.find("sync", neg, w.told(&w.syncs), args)
		},
		"! refused TEXT...": func(w *world, neg bool, args []string) {
			w.find("refusal", neg, []string{fmt.Sprint(w.refusal)}, args)
		},
		"granted [FILE]|[TEXT]...": func(w *world, _ bool, args []string) {
			if len(args) == 1 && strings.HasSuffix(args[0], ".txt") {
				args[0] = strings.TrimSpace(w.ts.ReadFile(args[0]))
			}
			w.same("granted", strings.Join(w.granted(), "\n"), strings.Join(args, "\n"))
		},
		"metric NAME VALUE": (*world).metric,
		"measured [TEXT]...": func(w *world, _ bool, args []string) { // the pods with metrics, see world.measured
			w.same("measured", strings.Join(w.measured(), "\n"), strings.Join(args, "\n"))
		},
		"series FILE": func(w *world, _ bool, args []string) { // the names of all metrics
			w.same("metrics", strings.Join(slices.Sorted(maps.Keys(w.metrics())), "\n")+"\n", w.ts.ReadFile(args[0]))
		},
		"agrees none|CONTAINER,... [KEY=VALUE]...": (*world).agrees,
		"known-pods [unknown] [POD]...":            (*world).knownPods,
		"weighted [POD[/CONTAINER]=WEIGHT@DISK...|POD[/CONTAINER]=WEIGHT: REASON]... [cleared@DISK...] [NAMESPACE<=WEIGHT|NAMESPACE>=SHARE...] [unknown=TEXT]": (*world).weighted,
	}
}

// knownPods compares the pods of which events are kept; they are unknown before the runtime has listed the pods.
func (w *world) knownPods(_ bool, args []string) {
	got, uids := []string{}, map[string]bool{}
	for _, of := range w.node.PodsByCgroup() {
		got, uids[of.UID] = append(got, of.Namespace+"/"+of.Name), true
	}
	present := w.present()
	if slices.Sort(got); present == nil {
		got = []string{"unknown"}
	} else if !maps.Equal(present, uids) {
		w.ts.Fatalf("events are kept of %v, and known are %v", present, uids)
	}
	w.same("pods", strings.Join(got, "\n"), strings.Join(args, "\n"))
}

// weighted compares the demand for weights.
func (w *world) weighted(_ bool, args []string) {
	d := w.node.Weighted()
	var got []string
	for _, of := range d.Weighted {
		got = append(got, strings.TrimSuffix(of.Pod+"/"+of.Container, "/")+"="+strconv.FormatUint(uint64(of.Weights.Default), 10)+cmp.Or(w.on(of.Disks), ": "+of.NoDisk))
	}
	if len(d.Cleared) > 0 {
		got = append(got, "cleared"+w.on(d.Cleared))
	}
	for _, b := range d.Budgets { // one for each pod
		if b.Weight != 0 {
			got = append(got, fmt.Sprintf("%s<=%d", b.Namespace, b.Weight))
		}
		if b.Guarantee != 0 {
			got = append(got, cmp.Or(b.Namespace, "class/"+b.Class)+">="+b.Guarantee.Short())
		}
	}
	if slices.Sort(got); !d.Complete {
		got = append(got, "unknown="+d.Unknown)
	}
	w.same("demand for weights", strings.Join(got, "\n"), strings.Join(args, "\n"))
}

func (w *world) metric(_ bool, args []string) {
	value, known := w.metrics()[args[0]]
	if !known {
		w.ts.Fatalf("no metric %s of %v", args[0], slices.Sorted(maps.Keys(w.metrics())))
	}
	w.same(args[0], strconv.FormatFloat(value, 'g', -1, 64), args[1])
}

// measured returns the pods that have metrics as "POD: LIMITS (container LIMITS, pod LIMITS...)", without what they do not have.
func (w *world) measured() (out []string) {
	format := func(values []blkio.Value) string {
		limits := map[blkio.Dev]blkio.Limits{}
		for _, v := range values {
			of := limits[v.Dev]
			of[v.Key] = v.Amount
			limits[v.Dev] = of
		}
		return w.format(limits)
	}
	for _, p := range w.node.Measured() {
		text := p.Name
		if len(p.Limits) > 0 {
			text += ": " + format(p.Limits)
		}
		var parts []string
		for _, part := range p.Parts {
			of := "container"
			if part.Cgroup == p.Cgroup {
				of = "pod"
			}
			parts = append(parts, of+" "+format(part.Limits))
		}
		if slices.Sort(parts); len(parts) > 0 {
			text += " (" + strings.Join(parts, ", ") + ")"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func (w *world) same(what, got, want string) {
	if got != want {
		w.ts.Fatalf("%s: got\n\t%s\nwant\n\t%s", what, strings.ReplaceAll(got, "\n", "\n\t"), strings.ReplaceAll(want, "\n", "\n\t"))
	}
}

// find fails the script unless some line, or as many as -count=N asks for, has all texts; -distinct=N asks for N events, of which each can
// repeat. With neg, no line may have them.
func (w *world) find(what string, neg bool, lines, texts []string) {
	wanted, isDistinct := -1, len(texts) > 0 && strings.HasPrefix(texts[0], "-distinct=")
	if len(texts) > 0 && (isDistinct || strings.HasPrefix(texts[0], "-count=")) {
		_, count, _ := strings.Cut(texts[0], "=")
		wanted, _ = strconv.Atoi(count)
		texts = texts[1:]
	}
	found, keys := 0, map[string]bool{}
	for _, line := range lines {
		line, key, _ := strings.Cut(line, eventKey)
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found++
			keys[key] = true
		}
	}
	if isDistinct {
		found = len(keys)
	}
	if neg && found > 0 || !neg && wanted < 0 && found == 0 || wanted >= 0 && found != wanted {
		w.ts.Fatalf("%s %q: %d found in\n\t%s", what, texts, found, strings.Join(lines, "\n\t"))
	}
}

func (w *world) limits(cgroup string) string { return w.format(w.kernel.Limits(cgroup)) }

// format formats limits as "vda rbps=1Mi wbps=2Mi; vdb wiops=100", and "none".
func (w *world) format(limits map[blkio.Dev]blkio.Limits) string {
	var out []string
	for dev, of := range limits {
		text := w.disks.Name(dev)
		for k, amount := range of {
			if amount != blkio.Unset && amount != blkio.Max {
				text += " " + blkio.Key(k).String() + "=" + annotation.FormatAmount(blkio.Key(k), amount)
			}
		}
		out = append(out, text)
	}
	if slices.Sort(out); len(out) == 0 {
		return "none"
	}
	return strings.Join(out, "; ")
}

// canonical formats "DISK KEY=VALUE... DISK KEY=VALUE..." in the same way.
func (w *world) canonical(args []string) string {
	limits := map[blkio.Dev]blkio.Limits{}
	var disk blkio.Dev
	for _, arg := range args {
		key, text, isPair := strings.Cut(arg, "=")
		switch {
		case arg == "none":
		case !isPair:
			disk = w.mustDisk(arg).Dev
			limits[disk] = blkio.Limits{}
		default:
			k, _ := blkio.ParseKey(blkio.IOMax, key)
			of := limits[disk]
			of[k] = w.amount(k, text)
			limits[disk] = of
		}
	}
	return w.format(limits)
}

// amount parses an amount as annotations have it.
func (w *world) amount(k blkio.Key, text string) blkio.Amount {
	a, problem := annotation.ParseAmount(k, text)
	if problem != nil {
		w.ts.Fatalf("amount %s: %v", text, problem)
	}
	return a
}

func (w *world) granted() (out []string) {
	for _, u := range w.node.Budgets() {
		line := fmt.Sprintf("%s %s %s %s of %s, %d pods", u.Namespace, u.Disk.Name, u.Key,
			annotation.FormatAmount(u.Key, u.Granted), annotation.FormatAmount(u.Key, u.Budget), u.Pods)
		if u.Undecided > 0 {
			line += fmt.Sprintf(", %d undecided", u.Undecided)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func (w *world) metrics() map[string]float64 {
	r := prometheus.NewPedanticRegistry()
	w.ts.Check(r.Register(w.node))
	families, err := r.Gather()
	w.ts.Check(err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "nri_blkio_")
			for _, l := range m.GetLabel() {
				name += "{" + l.GetValue() + "}"
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// written returns the cgroups of the writes since the last call, as POD and POD/CONTAINER.
func (w *world) written() (out []string) {
	for _, write := range w.kernel.Writes() {
		name, _, _ := strings.Cut(write, " ")
		for _, p := range w.pods {
			if name == p.cgroup+"/io.max" {
				out = append(out, p.name)
			}
			for _, sb := range p.sandboxes {
				for _, c := range sb.containers {
					if name == c.cgroup+"/io.max" {
						out = append(out, p.name+"/"+c.name)
					}
				}
			}
		}
	}
	return out
}

func (w *world) readRecord(cgroup string) *record.Record {
	kind := record.KindContainer
	if strings.HasSuffix(cgroup, ".slice") {
		kind = record.KindPod
	}
	r, err := record.Read(w.tree().Cgroup(cgroup), kind)
	w.ts.Check(err)
	return r
}

// recordOf returns the lines of a record, none if there is no record.
func (w *world) recordOf(cgroup string) (out []string) {
	r := w.readRecord(cgroup)
	if r == nil {
		return nil
	}
	list := func(name string, of policy.Settings) {
		for _, s := range of {
			at := s.Key.String()
			if s.Dev != (blkio.Dev{}) {
				at = w.disks.Name(s.Dev) + " " + at
			}
			out = append(out, fmt.Sprintf("%s %s=%s %s", name, at, annotation.FormatAmount(s.Key, s.Amount), s.Source))
		}
	}
	list("settings", r.Settings)
	list("lowered", r.Lowered)
	list("lent", r.Lent)
	list("weights", r.Weights)
	for _, text := range r.Warnings {
		out = append(out, "warning "+text)
	}
	if r.Error != "" {
		out = append(out, "error "+r.Error)
	}
	for name, isSet := range map[string]bool{"observed": r.Observed, "unvetted": r.Unvetted, "cleared": r.Cleared} {
		if isSet {
			out = append(out, name)
		}
	}
	for _, e := range r.Exits {
		out = append(out, "exit "+e.Container)
		list("exit "+e.Container, e.Limits)
	}
	if r.Edit != nil {
		out = append(out, fmt.Sprintf("edit %v labels %v", r.Edit.Annotations, r.Edit.Labels))
		for key, value := range r.Edit.NamespaceLabels {
			if value != nil {
				key += "=" + *value
			}
			out = append(out, "edit namespace "+key)
		}
	}
	return append(out, "record")
}

// tree opens the cgroups as another process does.
func (w *world) tree() *cgroupfs.Hierarchy {
	tree := w.kernel.Open(w.t, nil)
	w.t.Cleanup(func() { tree.Close() })
	return tree
}

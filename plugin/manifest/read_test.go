package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const minimalPod = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"

func TestReadFS(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
	fsys := fstest.MapFS{
		"b.yaml":             file(minimalPod),
		"a/x.YML":            file(minimalPod),
		"a/y.json":           file(`{"kind": "Secret"}`),
		"a/README.md":        file(minimalPod),
		".git/z.yaml":        file(minimalPod),
		"a/.hidden.yaml":     file(minimalPod),
		"kustomization.yaml": file("resources: [b.yaml]\nmetadata: text\n"),
		"patch.yaml":         file("- op: replace\n  path: /spec\n"),
		"pipe.yaml":          {Mode: fs.ModeNamedPipe, Data: []byte(minimalPod)}, // a real one would block
		"dir.yaml/z.yml":     file("kind: ConfigMap\n"),
		"bad.yaml":           file("a: [\n"),
		"empty.yaml":         file(""),
	}
	set, err := ReadFS(fsys, "dir")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range set.Pods {
		got = append(got, "pod "+p.Position.String())
	}
	for _, o := range set.Others {
		got = append(got, "other "+o.Position.String()+" "+o.Kind)
	}
	for _, f := range set.Findings {
		got = append(got, "finding "+f.Position.String())
	}
	want := []string{
		"pod dir/a/x.YML:1", "pod dir/b.yaml:1",
		"other dir/a/y.json:1 Secret", "other dir/dir.yaml/z.yml:1 ConfigMap", "other dir/kustomization.yaml:1 ", "other dir/patch.yaml:1 ",
		"finding dir/bad.yaml:1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestReadFSErrors checks that a file or a directory that cannot be read hides no other.
func TestReadFSErrors(t *testing.T) {
	files := fstest.MapFS{
		"a.yaml": {Data: []byte(minimalPod)}, "b.yaml": {Data: []byte(minimalPod)}, "c/d.yaml": {Data: []byte(minimalPod)},
	}
	for _, tt := range []struct {
		name string
		fsys fs.FS
		is   error
		text string
		pods int
	}{
		{"an empty directory", fstest.MapFS{}, nil, "", 0},
		{"a file", failing{files, "a.yaml"}, fs.ErrPermission, "read manifest dir/a.yaml: open a.yaml: permission denied", 2},
		{"a directory", failing{files, "c"}, fs.ErrPermission, "read manifests: open c: permission denied", 2},
		{"the directory itself", failing{files, "."}, fs.ErrPermission, "read manifests: open .: permission denied", 0},
		{
			"a link that leads nowhere",
			fstest.MapFS{"a.yaml": {Data: []byte("gone"), Mode: fs.ModeSymlink | 0o777}, "b.yaml": files["b.yaml"]},
			fs.ErrNotExist, "read manifest dir/a.yaml: open a.yaml: file does not exist", 1,
		},
		{"a link to a file", fstest.MapFS{"a.yaml": {Data: []byte("b"), Mode: fs.ModeSymlink | 0o777}, "b": files["b.yaml"]}, nil, "", 1},
	} {
		set, err := ReadFS(tt.fsys, "dir")
		text := ""
		if err != nil {
			text = err.Error()
		}
		if !errors.Is(err, tt.is) || text != tt.text || len(set.Pods) != tt.pods {
			t.Errorf("%s: %q, %d pods, want %q, %d", tt.name, text, len(set.Pods), tt.text, tt.pods)
		}
	}
}

// TestReadFSBounds checks that the number of files is bounded, and that those before are read.
func TestReadFSBounds(t *testing.T) {
	files := fstest.MapFS{"a.yaml": {Data: []byte(minimalPod)}}
	for i := range maxFiles - 1 {
		files[fmt.Sprintf("b%05d.json", i)] = &fstest.MapFile{}
	}
	if set, err := ReadFS(files, "dir"); err != nil || len(set.Pods) != 1 {
		t.Errorf("%d files: %v, %d pods", len(files), err, len(set.Pods))
	}
	files["c.yml"] = &fstest.MapFile{}
	set, err := ReadFS(files, "dir")
	if err == nil || err.Error() != "read manifests dir: more than 10000 files" || len(set.Pods) != 1 {
		t.Errorf("%d files: %v, %d pods", len(files), err, len(set.Pods))
	}
}

// TestReadFSTotal checks that the size of all files together is bounded.
func TestReadFSTotal(t *testing.T) {
	large := &fstest.MapFile{Data: []byte("#" + strings.Repeat("x", maxFile-1))}
	files := fstest.MapFS{"a.yaml": {Data: []byte(minimalPod)}, "z.yaml": {Data: []byte(minimalPod)}}
	for i := range maxTotal / maxFile {
		files[fmt.Sprintf("b%d.yaml", i)] = large
	}
	set, err := ReadFS(files, "dir")
	if err == nil || err.Error() != "read manifests dir: larger than 256 MiB" || len(set.Pods) != 1 {
		t.Errorf("%v, %d pods", err, len(set.Pods))
	}
	set, err = ReadFS(fstest.MapFS{"a.yaml": files["a.yaml"], "c.yaml": {Data: append(large.Data, 'x')}, "z.yaml": files["z.yaml"]}, "dir")
	if err == nil || err.Error() != "read manifest dir/c.yaml: larger than 32 MiB" || len(set.Pods) != 2 {
		t.Errorf("%v, %d pods", err, len(set.Pods))
	}
}

// failing is a directory with a file or a directory that cannot be opened.
type failing struct {
	fstest.MapFS
	name string
}

func (f failing) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.MapFS.Open(name)
}

func (f failing) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.MapFS.ReadDir(name)
}

func TestReadErrors(t *testing.T) {
	_, err := Read(iotest.ErrReader(io.ErrClosedPipe), "in")
	if !errors.Is(err, io.ErrClosedPipe) || err.Error() != "read manifest in: io: read/write on closed pipe" {
		t.Error(err)
	}
	_, err = Read(io.LimitReader(zeros{}, maxFile+1), "in")
	if err == nil || err.Error() != "read manifest in: larger than 32 MiB" {
		t.Error(err)
	}
}

// zeros are empty lines without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// TestManyFindings checks that findings are bounded.
func TestManyFindings(t *testing.T) {
	set := mustRead(t, "kind: List\nitems:\n"+strings.Repeat("- x\n", 3000))
	if n := len(set.Findings); n != maxFindings+1 || set.Findings[n-1].Text != "more than 1000 findings" {
		t.Errorf("%d findings, the last one is %v", n, &set.Findings[n-1])
	}
}

// TestPositions checks the numbers of documents and the lines of annotations.
func TestPositions(t *testing.T) {
	set := mustRead(t, "# license\n---\n\nkind: Pod\nspec: {containers: [{name: c}]}\n---\n# nothing\n---\n"+
		"{\"kind\": \"Pod\", \"metadata\": {\n \"annotations\": {\n\"k\": \"v\"}}, \"spec\": {\"containers\": [{\"name\": \"c\"}]}}\n{\"kind\": \"Secret\"}\n")
	if len(set.Pods) != 2 || len(set.Others) != 1 || len(set.Findings) > 0 {
		t.Fatal(render(&set))
	}
	for i, want := range []Position{{"in", 1, 4}, {"in", 2, 9}} {
		if got := set.Pods[i].Position; got != want {
			t.Errorf("pod %d: %+v, want %+v", i, got, want)
		}
	}
	if got, want := set.Others[0].Position, (Position{"in", 3, 12}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := set.Pods[1].Lines["k"]; got != 11 {
		t.Errorf("line %d of the annotation", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(minimalPod + "---\nkind: List\nitems: [{kind: Job}]\n")
	f.Add(`{"kind": "Pod", "spec": {"containers": [{"name": "\ud83d\ude00"}]}}{"a": 1}`)
	f.Add("kind: Pod\nmetadata: &m {annotations: *m, <<: *m}\n...\n%YAML 1.1\n--- # x\n{a: b}\n")
	f.Add("kind: Rollout\nspec: {template: {spec: {containers: [{resources: {limits: {memory: 1e9}}}]}}}\n")
	f.Add("kind: StatefulSet\nspec: {ordinals: {start: 1}, volumeClaimTemplates: [{metadata: {name: x}}], template: {spec: {volumes: [{name: y, csi: {}}]}}}\n")
	f.Add("kind: \"A\\nB\\e[2J\"\nmetadata: {annotations: {" + limitsName + ": x}}\n")
	f.Add("kind: R\nmetadata: {annotations: {" + limitsName + ": x}}\n\"a\\nb\": {spec: {containers: [{name: c}]}}\n")
	f.Fuzz(func(t *testing.T, in string) {
		set, err := Read(strings.NewReader(in), "in")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(set, mustRead(t, in)); d != "" {
			t.Errorf("another time:\n%s", d)
		}
		// YAML has more line breaks than "\n".
		lines := 1
		for _, r := range in {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) {
				lines++
			}
		}
		for i := range set.Findings {
			f := &set.Findings[i]
			if f.File != "in" || f.Document < 1 || f.Line < 0 || f.Line > lines+1 || f.Text == "" {
				t.Errorf("%+v of %d lines", f, lines)
			}
			if strings.ContainsFunc(f.Text, func(r rune) bool { return r < ' ' || r > '~' }) || len(f.Text) > 8<<10 || len(f.Field) > maxField {
				t.Errorf("the text %q in %q is not one short line", f.Text, f.Field)
			}
		}
		for i := range set.Pods {
			if p := &set.Pods[i]; p.Line < 1 || p.Line > lines || len(p.Annotations) != len(p.Lines) {
				t.Errorf("%+v of %d lines", p, lines)
			}
		}
	})
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/google/go-cmp/cmp"
	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/rpm"
	"github.com/sassoftware/go-rpmutils"
)

// build returns a package of .goreleaser.yaml. It is the same each time.
func build(t *testing.T, format string, by nfpm.Packager) []byte {
	t.Helper()
	t.Chdir("../../..")
	var built [2]bytes.Buffer
	for i := range built {
		info, err := read(format)
		if err != nil {
			t.Fatal(err)
		}
		if err := by.Package(info, &built[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(built[0].Bytes(), built[1].Bytes()) {
		t.Errorf("two packages %s differ", format)
	}
	return built[0].Bytes()
}

// files returns the files that both packages have, without the program.
func files(t *testing.T) map[string]string {
	t.Helper()
	want := map[string]string{}
	add := func(to, from string) {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		want[to] = string(text)
	}
	add("/etc/nri-blkio/policy.yaml", "deploy/policy.yaml")
	add("/usr/share/doc/nri-blkio/copyright", "LICENSE")
	for _, name := range []string{"nri-blkio", "nri-blkio-writeback", "nri-blkio-validator"} {
		add("/usr/lib/systemd/system/"+name+".service", "deploy/systemd/"+name+".service")
	}
	return want
}

// script returns a script of deploy/packages.
func script(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(path.Join("deploy/packages", name+".sh"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDeb verifies the files, the scripts and the conffile of the Debian package.
func TestDeb(t *testing.T) {
	data := build(t, "deb", deb.Default)
	want := files(t)
	control, content := map[string]string{}, map[string]string{}
	for r := ar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch h.Name {
		case "control.tar.gz":
			untar(t, r, control)
		case "data.tar.gz":
			untar(t, r, content)
		}
	}
	if diff := cmp.Diff(want, content); diff != "" {
		t.Errorf("files, -want +got:\n%s", diff)
	}
	for in, name := range map[string]string{"postinst": "postinstall", "prerm": "preremove", "postrm": "postremove"} {
		if diff := cmp.Diff(script(t, name), control["/"+in]); diff != "" {
			t.Errorf("%s, -want +got:\n%s", in, diff)
		}
	}
	if got := control["/conffiles"]; got != "/etc/nri-blkio/policy.yaml\n" {
		t.Errorf("conffiles: %q", got)
	}
	for _, line := range []string{"Package: nri-blkio", "Architecture: amd64", "Version: 0.0.1"} {
		if !strings.Contains(control["/control"], line+"\n") {
			t.Errorf("control has no %q:\n%s", line, control["/control"])
		}
	}
}

// untar adds the regular files of an archive.
func untar(t *testing.T, from io.Reader, to map[string]string) {
	t.Helper()
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			to[path.Join("/", h.Name)] = string(text)
		}
	}
}

// TestRPM verifies the files, the scripts and the configuration of the RPM package.
func TestRPM(t *testing.T) {
	data := build(t, "rpm", rpm.DefaultRPM)
	want := files(t)
	r, err := rpmutils.ReadRpm(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	infos, err := r.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range infos {
		isConfig := f.Flags()&rpmutils.RPMFILE_CONFIG != 0 && f.Flags()&rpmutils.RPMFILE_NOREPLACE != 0
		if isConfig != (f.Name() == "/etc/nri-blkio/policy.yaml") {
			t.Errorf("%s: configuration that stays: %v", f.Name(), isConfig)
		}
	}
	payload, err := r.PayloadReaderExtended()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for {
		f, err := payload.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(payload)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name()] = string(text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files, -want +got:\n%s", diff)
	}
	for tag, name := range map[int]string{rpmutils.POSTIN: "postinstall", rpmutils.PREUN: "preremove", rpmutils.POSTUN: "postremove"} {
		got, err := r.Header.GetString(tag)
		if err != nil || got != script(t, name) {
			t.Errorf("script %s: %v, %s", name, err, got)
		}
	}
}

// TestOnePackage verifies that a configuration with no package, or with a field that is not nfpm's, is an error.
func TestOnePackage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, text := range []string{"", "nfpms: []", "nfpms: [{package_name: a, colour: red}]"} {
		if err := os.WriteFile(".goreleaser.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read("deb"); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseAptList(t *testing.T) {
	const text = `# a comment
deb http://mirror.example/debian bookworm main contrib # why
deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] https://mirror.example/debian trixie main
deb-src http://mirror.example/debian bookworm main
  deb	[ trusted=yes ]	http://mirror.example/x	sid	main
deb onlyauri
#deb http://mirror.example/off bookworm main
`
	want := []aptSource{
		{uri: "http://mirror.example/debian", suite: "bookworm"},
		{uri: "https://mirror.example/debian", suite: "trixie", signedBy: "/usr/share/keyrings/k.gpg"},
		{uri: "http://mirror.example/x", suite: "sid"},
	}
	if got := parseAptList(text); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseAptDeb822(t *testing.T) {
	const text = `Types: deb deb-src
# a comment inside
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/k.gpg

Types: deb-src
URIs: http://mirror.example/src
Suites: bookworm

Enabled: no
Types: deb
URIs: http://mirror.example/off
Suites: bookworm


types: deb
uris: http://a.example http://b.example
suites: trixie
signed-by:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
`
	const k = "/usr/share/keyrings/k.gpg"
	want := []aptSource{
		{uri: "http://mirror.example/debian", suite: "bookworm", signedBy: k},
		{uri: "http://mirror.example/debian", suite: "bookworm-updates", signedBy: k},
		{uri: "http://a.example", suite: "trixie"},
		{uri: "http://b.example", suite: "trixie"},
	}
	if got := parseAptDeb822(text); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDebianMirror(t *testing.T) {
	dir := t.TempDir()
	if _, err := debianMirror(dir); err == nil {
		t.Error("a machine without sources: no error")
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("sources.list.d/a.list", "deb http://vendor.example/apt sdk-bookworm main\n")
	write("sources.list.d/b.sources", "Types: deb\nURIs: http://sec.example\nSuites: bookworm-security\n\n"+
		"Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n")
	write("sources.list.d/c.sources.disabled", "Types: deb\nURIs: http://off.example\nSuites: trixie\n")
	got, err := debianMirror(dir)
	if err != nil || got.uri != "http://mirror.example/debian" || got.suite != "bookworm" || got.security != "http://sec.example" {
		t.Errorf("mirror of sources in deb822: got %+v, %v", got, err)
	}
	write("sources.list", "deb http://first.example/debian trixie main\n")
	if got, err = debianMirror(dir); err != nil || got.uri != "http://first.example/debian" {
		t.Errorf("mirror of sources.list: got %+v, %v", got, err)
	}
}

func TestSecurityURI(t *testing.T) {
	const main = "http://mirror.example/debian/"
	if got, want := securityURI([]aptSource{{uri: main, suite: "bookworm"}}, main), "http://mirror.example/debian-security"; got != want {
		t.Errorf("without a security source: got %q, want %q", got, want)
	}
	other := []aptSource{{uri: "http://vendor.example", suite: "x-security"}, {uri: "http://sec.example", suite: "trixie-security"}}
	if got, want := securityURI(other, main), "http://sec.example"; got != want {
		t.Errorf("with another vendor's: got %q, want %q", got, want)
	}
}

func TestAptLine(t *testing.T) {
	key := filepath.Join(t.TempDir(), "k.gpg")
	if err := os.WriteFile(key, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := aptSource{uri: "http://mirror.example/debian", suite: "bookworm", signedBy: key, security: "http://sec.example"}
	want := "deb [signed-by=" + key + "] http://mirror.example/debian trixie main\n"
	if got := s.line("trixie"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := s.line("bookworm-security"), "deb [signed-by="+key+"] http://sec.example bookworm-security main\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	back := parseAptList(want)
	if len(back) != 1 || back[0] != (aptSource{uri: s.uri, suite: "trixie", signedBy: key}) {
		t.Errorf("a printed line is parsed as %+v", back)
	}
}

func TestParseQEMUMajor(t *testing.T) {
	for text, want := range map[string]int{
		"QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)\nCopyright": 10,
		"QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg-7+deb12u14)":            7,
		"":              0,
		"version x.y":   0,
		"version 11":    11,
		"not a version": 0,
	} {
		if got := parseQEMUMajor(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

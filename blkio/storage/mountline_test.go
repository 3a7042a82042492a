package storage

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// mangle is mangle_path and seq_escape in fs/seq_file.c, for the bytes that mountinfo
// escapes (show_mountinfo in fs/proc_namespace.c).
func mangle(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(" \t\n\\#", s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// TestEscapedNames verifies that each name that a directory can have is read back. A volume in a directory with
// a blank or a newline is limited as any other.
func TestEscapedNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		name := make([]byte, 1+rng.IntN(40))
		for i := range name {
			if name[i] = byte(1 + rng.IntN(255)); name[i] == '/' || rng.IntN(3) == 0 {
				name[i] = " \t\n\\#a0"[rng.IntN(7)]
			}
		}
		if text := string(name); text != "." && text != ".." {
			line := "5 1 8:1 /" + mangle(text) + " /mnt/" + mangle(text) + " rw - ext4 /dev/" + mangle(text) + " rw\n"
			table := parseTable(t, line)
			if len(table.mounts) != 1 {
				t.Fatalf("%q: %d mounts", text, len(table.mounts))
			}
			m := table.mounts[0]
			if m.Root != "/"+text || m.Mountpoint != "/mnt/"+text || m.Source != "/dev/"+text || m.Unreadable != "" {
				t.Fatalf("%q: %+v", text, m)
			}
		}
	}
}

// TestUnescapeOctal has backslashes that are no escape of the kernel's: they stay.
func TestUnescapeOctal(t *testing.T) {
	for in, want := range map[string]string{
		``: ``, `a`: `a`, `\040`: " ", `\134040`: `\040`, `\`: `\`, `\0`: `\0`, `\04`: `\04`, `a\040`: "a ", `\040b\011`: " b\t",
		`\400`: `\400`, `\777`: `\777`, `\08x`: `\08x`, `\-01`: `\-01`, `\\040`: `\ `, `\377`: "\xff", `\000`: "\x00",
	} {
		if got := unescapeOctal(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestForgedLines has options of a filesystem with a newline, which the kernel does not escape in all of them.
// The text after it has the form of a line of its own, and a tenant could choose it. It must not replace
// another mount.
func TestForgedLines(t *testing.T) {
	const root = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
	for _, forged := range []string{
		"x", "5", "5 1", "5 1 8:1", "5 1 8:1 /", "a b c d e f", "-1 1 8:1 / relative rw - ext4 /dev/sda rw",
		"5 x 8:1 / /etc rw - ext4 /dev/sda rw", "5 1 8:1 / ../etc rw - ext4 /dev/sda rw", " 5 1 8:1 / /etc rw - ext4 /dev/sda rw",
	} {
		table := parseTable(t, root+"2 1 0:9 / /run rw - fuse.x x rw,"+"\n"+forged+"\n")
		if len(table.mounts) != 2 {
			t.Errorf("%q makes %d mounts", forged, len(table.mounts))
		}
		for _, p := range []string{"/etc", "/etc/x"} {
			if m, ok := table.Find(p); !ok || m.ID != 1 {
				t.Errorf("%q: %s is in %+v", forged, p, m)
			}
		}
	}
}

// TestLinesInParts verifies that lines are the same however the kernel returns them: one byte
// with each read, or half of a page.
func TestLinesInParts(t *testing.T) {
	want := parseTable(t, nodeMounts)
	got, err := ParseMountTable(iotest.OneByteReader(strings.NewReader(nodeMounts)))
	if err != nil || len(got.mounts) != len(want.mounts) {
		t.Fatalf("%d mounts, %v, want %d", len(got.mounts), err, len(want.mounts))
	}
	for i := range want.mounts {
		if *got.mounts[i] != *want.mounts[i] {
			t.Errorf("got %+v, want %+v", got.mounts[i], want.mounts[i])
		}
	}
	if table, err := ParseMountTable(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(nodeMounts)))); err == nil {
		t.Errorf("an error in the middle gives %d mounts", len(table.mounts))
	}
	// The last line without its newline counts, unless it is cut off in a field that matters.
	for cut, mounts := range map[int]int{0: 19, 1: 19, 3: 19, 60: 18} {
		table := parseTable(t, nodeMounts[:len(nodeMounts)-cut])
		if len(table.mounts) != mounts {
			t.Errorf("without the last %d bytes: %d mounts, want %d", cut, len(table.mounts), mounts)
		}
	}
}

// TestHasOption verifies that an option is one between commas, and not a part of another.
func TestHasOption(t *testing.T) {
	for _, tt := range []struct {
		options string
		want    bool
	}{
		{"data=journal", true},
		{"rw,data=journal", true},
		{"rw,data=journal,errors=continue", true},
		{"data=journal2", false},
		{"xdata=journal", false},
		{"data=ordered", false},
		{"rw, data=journal", false},
		{"", false},
	} {
		if got := hasOption(tt.options, "data=journal"); got != tt.want {
			t.Errorf("%q: %v", tt.options, got)
		}
	}
}

// TestKeptOptions verifies that only the options that name layers are kept of an overlay: a
// table of many overlays is large by them already. Of XFS that is the realtime device.
func TestKeptOptions(t *testing.T) {
	for in, want := range map[string]string{
		"":   "",
		"rw": "",
		"rw,lowerdir=/a:/b,upperdir=/u,workdir=/w,index=off": "lowerdir=/a:/b,upperdir=/u",
		"lowerdir+=/a,datadir+=/d,xino=off":                  "lowerdir+=/a,datadir+=/d",
		"upperdirs=/x,lowerdir":                              "lowerdir",
	} {
		m := Mount{FSType: "overlay"}
		if m.setOptions(in); m.Options != want || m.realtime() != "" {
			t.Errorf("%q: got %q, want %q", in, m.Options, want)
		}
	}
	m := Mount{FSType: "xfs"}
	if m.setOptions(`rw,logdev=/dev/sda,rtdev=/dev/mapper/a\040b,noquota`); m.realtime() != "/dev/mapper/a b" {
		t.Errorf("the realtime device is %q of %q", m.realtime(), m.Options)
	}
}

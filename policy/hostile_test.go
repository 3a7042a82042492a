package policy

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestHostileText verifies that for any text of a tenant, the line stays short, printable and one line.
func TestHostileText(t *testing.T) {
	pieces := []string{
		"\x1b[2J\x1b[31mfree limits\x1b[0m", "\u202egnp.exe", "Ünïcödé/日本語/🙈", "\xff\xfe\x00", "a\r\nb", `\"`, `"`, "'", "%s%n%d",
		strings.Repeat("a", 64<<10), strings.Repeat("🙈", 16<<10), strings.Repeat("\x00", 64<<10), strings.Repeat(`"`, 64<<10-1),
		strings.Repeat("\xff", 300), strings.Repeat("=", 500), strings.Repeat(";", 64<<10), strings.Repeat("#\n", 32<<10),
	}
	forms := []string{
		"%", "/% wbps=1Mi", `"/%" wbps=1Mi`, "/data %", "/data %=1Mi", "/data wbps=%", "/data wbps=1%", "/data wbps=1Mi %", "@%", "@% wbps=1Mi", `"@%" wbps=1Mi`,
		"/data wbps=1Mi; /logs wbps=2Mi; /%", "% /data wbps=1Mi", "/data/% wbps=1Mi; /logs/% wbps=2Mi", "/scratch/% wbps=1Mi", "/a/../% wbps=1Mi",
	}
	for _, piece := range pieces {
		for _, form := range forms {
			text := strings.ReplaceAll(form, "%", piece)
			hostile(t, map[string]string{keyDB: text, keyTotal: text, "weight.blkio.noderesource.dev/containers": text})
			hostile(t, map[string]string{"class.blkio.noderesource.dev/container.db": text})
		}
		for _, prefix := range []string{"", "limits.", "weight.", "class.", piece + "."} {
			for _, scope := range []string{"", "/", "/container.", "/containers", "/pod"} {
				hostile(t, map[string]string{prefix + "blkio.noderesource.dev" + scope + piece: piece})
			}
		}
		c := db()
		c.Mounts = append(c.Mounts, mount("/"+piece, tmpfs()))
		c.Rootfs = tmpfs()
		c.Mounts[3].Backing = new(tmpfs())
		c.Mounts[4].Volume, c.Mounts[5].VolumePlugin = piece, piece
		r := annotation.Parse(map[string]string{keyDB: "* wbps=1Mi; @scratc wbps=1Mi; @wal wbps=1Mi"})
		d, _ := Default().of(r).Container(c)
		for _, e := range d.Errors {
			checkLine(t, e.Error())
		}
		if err := Default().ForPod(&PodFacts{Handler: piece}, r).checkRuntime(); err == nil {
			t.Error("a hostile runtime handler is known")
		} else {
			checkLine(t, err.Error())
		}
	}
}

func hostile(t *testing.T, annotations map[string]string) {
	t.Helper()
	r := annotation.Parse(annotations)
	d, err := Default().of(r).Container(db())
	total, totalErr := Default().of(r).Total(pod())
	for _, e := range append(append(d.Errors, total.Errors...), Default().of(r).Check()...) {
		checkLine(t, e.Error())
	}
	for _, err := range []error{err, totalErr} {
		if err != nil {
			checkLine(t, err.Error())
		}
	}
	for _, w := range append(append(d.Warnings, total.Warnings...), Default().of(r).Unmatched(pod())...) {
		checkLine(t, w)
	}
	for _, s := range append(d.Skipped, total.Skipped...) {
		if len(s.What) > 64 || len(s.Source.Target) > 64 {
			t.Errorf("skipped: %d bytes of %.70q", len(s.What), s.What)
		}
	}
}

func TestTooManyEntries(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		b.WriteString("/data/" + strings.Repeat("a", i+1) + " wbps=1Mi;")
	}
	r := annotation.Parse(map[string]string{keyDB: b.String()})
	d, err := Default().of(r).Container(db())
	if want := "nri-blkio: " + keyDB + ": more than 256 entries (name fewer targets, or use *)"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if len(limits(d)) != 1 {
		t.Errorf("the first 256 are not in force: %v", limits(d))
	}
}

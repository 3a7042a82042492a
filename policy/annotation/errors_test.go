package annotation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// entryErrors are the errors of one annotation of container db, without the
// head that all have.
var entryErrors = []struct{ value, want string }{
	// Values as a whole.
	{"", `the value is empty (write for example "/data wbps=50Mi", or remove the annotation)`},
	{" ;\n# only a comment; here\n;", `the value is empty (write for example "/data wbps=50Mi", or remove the annotation)`},
	{strings.Repeat(";", 64<<10), `the value is empty (write for example "/data wbps=50Mi", or remove the annotation)`},
	{strings.Repeat("x", 64<<10+1), `the value is longer than 64 KiB (name fewer targets, or use *)`},

	// Targets.
	{"/data", `entry 1 "/data": no limit after the target (write for example "/data wbps=50Mi")`},
	{`"/data"`, `entry 1 "\"/data\"": no limit after the target (write for example "\"/data\" wbps=50Mi")`},
	{"/data=5Mi", `entry 1 "/data=5Mi": no limit after the target (write for example "/data wbps=50Mi")`},
	{"wbps=50Mi", `entry 1 "wbps=50Mi": no target before "wbps=50Mi" (write "/path", @VOLUME, rootfs or * first)`},
	{"data wbps=1Mi", `entry 1 "data wbps=1Mi": unknown target "data" (write "/path", @VOLUME, rootfs or *)`},
	{"rootFS wbps=1Mi", `entry 1 "rootFS wbps=1Mi": unknown target "rootFS" (did you mean "rootfs"?)`},
	{"all wbps=1Mi", `entry 1 "all wbps=1Mi": unknown target "all" (write * for all disks)`},
	{"ALL wbps=1Mi", `entry 1 "ALL wbps=1Mi": unknown target "ALL" (write * for all disks)`},
	{"** wbps=1Mi", `entry 1 "** wbps=1Mi": unknown target "**" (write * for all disks)`},
	{".data wbps=1Mi", `entry 1 ".data wbps=1Mi": path ".data" is not absolute (write a path in the container that starts with /)`},
	{"./data wbps=1Mi", `entry 1 "./data wbps=1Mi": path "./data" is not absolute (write a path in the container that starts with /)`},
	{"var/data wbps=1Mi", `entry 1 "var/data wbps=1Mi": path "var/data" is not absolute (write a path in the container that starts with /)`},
	{`"data" wbps=1Mi`, `entry 1 "\"data\" wbps=1Mi": path "data" is not absolute (write a path in the container that starts with /)`},
	{"/ wbps=1Mi", `entry 1 "/ wbps=1Mi": "/" is the root filesystem of the container (write rootfs)`},
	{"//./ wbps=1Mi", `entry 1 "//./ wbps=1Mi": "/" is the root filesystem of the container (write rootfs)`},
	{"/a/../b wbps=1Mi", `entry 1 "/a/../b wbps=1Mi": path "/a/../b" contains ".." (write the path without it)`},
	{"@ wbps=1Mi", `entry 1 "@ wbps=1Mi": missing volume name after @ (write for example "@data wbps=50Mi")`},
	{"@Data_1 wbps=1Mi", `entry 1 "@Data_1 wbps=1Mi": invalid volume name "Data_1" (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
	{`@"data" wbps=1Mi`, `entry 1 "@\"data\" wbps=1Mi": invalid volume name "\"data\"" (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
	{"@" + strings.Repeat("a", 64) + " wbps=1Mi", `entry 1 "@` + strings.Repeat("a", 64) + ` wbps=1Mi": invalid volume name "` + strings.Repeat("a", 55) + `"... (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
	{"@data=1Mi", `entry 1 "@data=1Mi": invalid volume name "data=1Mi" (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
	{"@data", `entry 1 "@data": no limit after the target (write for example "@data wbps=50Mi")`},
	{`"@data" wbps=1Mi`, `entry 1 "\"@data\" wbps=1Mi": target @data is quoted (write it without quotes)`},
	{`"@Data" wbps=1Mi`, `entry 1 "\"@Data\" wbps=1Mi": path "@Data" is not absolute (write a path in the container that starts with /)`},
	{"disk:sda wbps=1Mi", `entry 1 "disk:sda wbps=1Mi": disk: targets are only for classes of the node policy (write "/path", @VOLUME, rootfs or *)`},
	{"disk: wbps=1Mi", `entry 1 "disk: wbps=1Mi": disk: targets are only for classes of the node policy (write "/path", @VOLUME, rootfs or *)`},
	{"disk:/dev/[ wbps=1Mi", `entry 1 "disk:/dev/[ wbps=1Mi": disk: targets are only for classes of the node policy (write "/path", @VOLUME, rootfs or *)`},
	{"/data wbps=1Mi; # soon", `entry 2 "# soon": a comment must start its line (put a newline before "#")`},
	{`"/a wbps=1Mi`, `entry 1 "\"/a wbps=1Mi": unterminated quote (write \" for a quote inside a quoted path)`},
	{"\"/a\nwbps=1Mi", `entry 1 "\"/a": unterminated quote (write \" for a quote inside a quoted path)`},
	{`"/a"wbps=1Mi`, `entry 1 "\"/a\"wbps=1Mi": missing blank after the quoted path (put one after the closing quote)`},
	{`"/a\n" wbps=1Mi`, `entry 1 "\"/a\\n\" wbps=1Mi": invalid escape "\\n" (only \" and \\ are supported)`},
	{`"" wbps=1Mi`, `entry 1 "\"\" wbps=1Mi": the path is empty (write a path in the container that starts with /)`},
	{`"*" wbps=1Mi`, `entry 1 "\"*\" wbps=1Mi": target * is quoted (write it without quotes)`},
	{`"rootfs" wbps=1Mi`, `entry 1 "\"rootfs\" wbps=1Mi": target rootfs is quoted (write it without quotes)`},
	{"\"/a\tb\" wbps=1Mi", `entry 1 "\"/a\tb\" wbps=1Mi": control character in the entry (remove it)`},
	{"/data wbps=1Mi\x1b[31m", `entry 1 "/data wbps=1Mi\x1b[31m": control character in the entry (remove it)`},
	{"/d\xffta wbps=1Mi", `entry 1 "/d\xffta wbps=1Mi": invalid UTF-8 (write the annotation again)`},
	{"/data wbps=1Mi; /logs/ rbps=1Mi; /data// rbps=1Mi", `entry 3 "/data// rbps=1Mi": duplicate target "/data//", first in entry 1 (write all its limits into one entry)`},
	{"@wal wbps=1Mi; @pgdata wbps=1Mi; @wal rbps=1Mi", `entry 3 "@wal rbps=1Mi": duplicate target "@wal", first in entry 1 (write all its limits into one entry)`},
	{"* wbps=1Mi\n* rbps=1Mi", `entry 2 "* rbps=1Mi": duplicate target "*", first in entry 1 (write all its limits into one entry)`},

	// Keys.
	{"/data wpbs=50Mi", `entry 1 "/data wpbs=50Mi": unknown key "wpbs" (did you mean "wbps"?)`},
	{"/data WBPS=50Mi", `entry 1 "/data WBPS=50Mi": unknown key "WBPS" (did you mean "wbps"?)`},
	{"/data bsp=50Mi", `entry 1 "/data bsp=50Mi": unknown key "bsp" (did you mean "bps"?)`},
	{"/data =50Mi", `entry 1 "/data =50Mi": unknown key "" (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)`},
	{"/data bps=50Mi rbps=10Mi", `entry 1 "/data bps=50Mi rbps=10Mi": the keys "bps" and "rbps" set the same limit (bps and iops set both directions; write one of the two keys)`},
	{"/data wiops=9 iops=9", `entry 1 "/data wiops=9 iops=9": the keys "wiops" and "iops" set the same limit (bps and iops set both directions; write one of the two keys)`},
	{"/data iops=9 iops=9", `entry 1 "/data iops=9 iops=9": duplicate key "iops" (write it once)`},
	{"/data iops=", `entry 1 "/data iops=": key "iops" has no value (write for example iops=2k)`},
	{"/data bps", `entry 1 "/data bps": key "bps" has no value (write for example bps=50Mi)`},
	{"/data bps=0", `entry 1 "/data bps=0": rbps=0 stops all I/O (write max for no limit)`},
	{"/data iops=4Gi", `entry 1 "/data iops=4Gi": "4Gi" is too large (write at most 4294967294, or max for no limit)`},
	{"bps=50Mi", `entry 1 "bps=50Mi": no target before "bps=50Mi" (write "/path", @VOLUME, rootfs or * first)`},
	{"/data wbps=1Mi wbps=1Mi", `entry 1 "/data wbps=1Mi wbps=1Mi": duplicate key "wbps" (write it once)`},
	{"/data wbps", `entry 1 "/data wbps": key "wbps" has no value (write for example wbps=50Mi)`},
	{"/data riops=", `entry 1 "/data riops=": key "riops" has no value (write for example riops=2k)`},
	{"/data wbps = 1Mi", `entry 1 "/data wbps = 1Mi": key "wbps" has no value (write for example wbps=50Mi)`},
	{"/data wbps:1Mi", `entry 1 "/data wbps:1Mi": "wbps:1Mi" is not key=value (write for example wbps=50Mi, without blanks in it)`},
	{"/data wbps=1Mi /logs=1Mi", `entry 1 "/data wbps=1Mi /logs=1Mi": unknown key "/logs" (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)`},
	{"/data @wal wbps=1Mi", `entry 1 "/data @wal wbps=1Mi": "@wal" is a second target (separate entries by ";"; quote a path with blanks)`},
	{"/data /logs wbps=1Mi", `entry 1 "/data /logs wbps=1Mi": "/logs" is a second target (separate entries by ";"; quote a path with blanks)`},
}

func TestEntryErrors(t *testing.T) {
	for _, tt := range entryErrors {
		r := Parse(map[string]string{keyDB: tt.value})
		err := first(r, "db")
		if err == nil {
			t.Errorf("%.80q: no error", tt.value)
			continue
		}
		if want := "nri-blkio: " + keyDB + ": " + tt.want; err.Error() != want {
			t.Errorf("%.80q:\n got %s\nwant %s", tt.value, err, want)
		}
		checkLine(t, err.Error())
		// Another container does not suffer.
		if err := first(r, "web"); err != nil {
			t.Errorf("%.80q: of another container: %v", tt.value, err)
		}
	}
}

// checkRates checks the errors of one key and its value, "wbps=50MB", each in an entry of its own.
func checkRates(t *testing.T, tests []struct{ word, want string }) {
	t.Helper()
	for _, tt := range tests {
		err := first(Parse(map[string]string{keyDB: "/data " + tt.word}), "db")
		want := "nri-blkio: " + keyDB + ": entry 1 " + quote.Within("/data "+tt.word, 400) + ": " + tt.want
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", tt.word, err, want)
		}
	}
}

// TestUnitErrors covers units that are no suffixes of Kubernetes' quantities, with the likely
// correction.
func TestUnitErrors(t *testing.T) {
	checkRates(t, []struct{ word, want string }{
		{"wbps=50MB", `invalid quantity "50MB" (write 50M or 50Mi)`},
		{"wbps=50mb", `invalid quantity "50mb" (write 50M or 50Mi)`},
		{"wbps=50MiB", `invalid quantity "50MiB" (write 50Mi)`},
		{"wbps=50Mi/s", `invalid quantity "50Mi/s" (write 50Mi)`},
		{"wbps=50MB/sec", `invalid quantity "50MB/sec" (write 50M or 50Mi)`},
		{"wbps=50MBps", `invalid quantity "50MBps" (write 50M or 50Mi)`},
		{"wbps=50mi", `invalid quantity "50mi" (write 50Mi)`},
		{"wbps=10K", `invalid quantity "10K" (write 10k or 10Ki)`},
		{"wbps=1.5g", `invalid quantity "1.5g" (write 1.5G or 1.5Gi)`},
		{"wbps=500B", `invalid quantity "500B" (write 500)`},
		{"wbps=0.5B", `invalid quantity "0.5B" (write a whole number such as 50Mi)`},
		{"wbps=50Mbps", `invalid quantity "50Mbps" (rates are bytes per second, not bits; write for example 50Mi)`},
		{"wbps=50Mbitps", `invalid quantity "50Mbitps" (rates are bytes per second, not bits; write for example 50Mi)`},
		{"wbps=50Mbits", `invalid quantity "50Mbits" (rates are bytes per second, not bits; write for example 50Mi)`},
		{"wbps=50Mbit/s", `invalid quantity "50Mbit/s" (rates are bytes per second, not bits; write for example 50Mi)`},
		{"wiops=10K", `invalid quantity "10K" (write 10k)`},
		{"wiops=2kiops", `invalid quantity "2kiops" (write 2k)`},
		{"wiops=500/s", `invalid quantity "500/s" (write 500)`},
		{"wbps=1Mi,rbps=2Mi", `invalid quantity "1Mi,rbps=2Mi" (separate keys by blanks, and write numbers without commas)`},
		{"wbps=1_000", `invalid quantity "1_000" (write a whole number such as 50Mi)`},
		{"wbps=.5B", `invalid quantity ".5B" (write a whole number such as 50Mi)`},
		{"wbps=.5.M", `invalid quantity ".5.M" (write a whole number such as 50Mi)`},
		{"wbps=1.2.3", `invalid quantity "1.2.3" (write a whole number such as 50Mi)`},
		{"wbps=1e3Mi", `invalid quantity "1e3Mi" (write a whole number such as 50Mi)`},
		{"wbps=2e", `invalid quantity "2e" (write a whole number such as 50Mi)`},
		{"wbps=5+3", `invalid quantity "5+3" (write a whole number such as 50Mi)`},
		{"wbps=2e-+3", `invalid quantity "2e-+3" (write a whole number such as 50Mi)`},
		{"wbps=2e+-3", `invalid quantity "2e+-3" (write a whole number such as 50Mi)`},
	})
}

// TestRateErrors covers values that are no numbers above zero, or more than the kernel can hold.
func TestRateErrors(t *testing.T) {
	checkRates(t, []struct{ word, want string }{
		// No numbers.
		{"wbps=abc", `invalid number "abc" (write a whole number such as 50Mi)`},
		{"wbps=.", `invalid number "." (write a whole number such as 50Mi)`},
		{"wbps=+Mi", `invalid number "+Mi" (write a whole number such as 50Mi)`},
		{`wbps="50Mi"`, `value "\"50Mi\"" is quoted (write it without quotes)`},
		{"wbps='50Mi'", `value "'50Mi'" is quoted (write it without quotes)`},
		{"wbps=MAX", `invalid rate "MAX" (write max for no limit)`},
		{"wbps=unlimited", `invalid rate "unlimited" (write max for no limit)`},
		{"wbps=" + strings.Repeat("1", 41), `number "` + strings.Repeat("1", 41) + `" is too long (write a whole number such as 50Mi)`},

		// Zero, negative, fractions.
		{"wbps=0", `wbps=0 stops all I/O (write max for no limit)`},
		{"wbps=0.00Gi", `wbps=0.00Gi stops all I/O (write max for no limit)`},
		{"wbps=0e36", `wbps=0e36 stops all I/O (write max for no limit)`},
		{"wbps=-5Mi", `"-5Mi" is negative (write a whole number such as 50Mi, or max for no limit)`},
		{"wiops=-1", `"-1" is negative (write a whole number such as 2k, or max for no limit)`},
		{"wbps=65536.5", `"65536.5" is not a whole number (write a whole number such as 50Mi)`},
		{"wbps=0.3Mi", `"0.3Mi" is not a whole number (write a whole number such as 50Mi)`},
		{"wbps=50m", `"50m" is a fraction: m is Kubernetes' suffix for thousandths (write 50M or 50Mi)`},
		{"wbps=65536000m", `"65536000m" is a fraction: m is Kubernetes' suffix for thousandths (write 65536)`},
		{"wbps=000m", `"000m" is a fraction: m is Kubernetes' suffix for thousandths (write 000M or 000Mi)`},
		{"wbps=5.000m", `"5.000m" is a fraction: m is Kubernetes' suffix for thousandths (write 5.000M or 5.000Mi)`},
		{"wbps=5000u", `"5000u" is a fraction: u is Kubernetes' suffix for millionths (write a whole number such as 50Mi)`},
		{"wiops=5n", `"5n" is a fraction: n is Kubernetes' suffix for billionths (write a whole number such as 2k)`},
		{"wiops=5u", `"5u" is a fraction: u is Kubernetes' suffix for millionths (write a whole number such as 2k)`},
		{"wbps=15e-1", `"15e-1" is a fraction (write a whole number such as 50Mi)`},
		// ParseQuantity rounds this one up to the whole number 65537.
		{"wbps=65536.9999999999", `"65536.9999999999" has more than nine decimals (write a whole number such as 50Mi)`},

		// More than the kernel can hold; ParseQuantity cuts 8Ei silently,
		// and computes for a long time with the exponents.
		{"wbps=9223372036854775807", `"9223372036854775807" is too large (write less than 8Ei, or max for no limit)`},
		{"wbps=8Ei", `"8Ei" is too large (write less than 8Ei, or max for no limit)`},
		{"wbps=16Ei", `"16Ei" is too large (write less than 8Ei, or max for no limit)`},
		{"wbps=18446744073709551617", `"18446744073709551617" is too large (write less than 8Ei, or max for no limit)`},
		{"wbps=.0000000001G", `".0000000001G" has more than nine decimals (write a whole number such as 50Mi)`},
		{"wbps=7.9999999999Ei", `"7.9999999999Ei" has more than nine decimals (write a whole number such as 50Mi)`},
		{"wbps=100E", `"100E" is too large (write less than 8Ei, or max for no limit)`},
		{"wbps=1e36", `"1e36" is too large (write less than 8Ei, or max for no limit)`},
		{"wbps=1e2147483647", `"1e2147483647" is too large (write max for no limit)`},
		{"wbps=1E99999999999999999999", `"1E99999999999999999999" is too large (write max for no limit)`},
		{"wiops=4294967295", `"4294967295" is too large (write at most 4294967294, or max for no limit)`},
		{"wiops=4Gi", `"4Gi" is too large (write at most 4294967294, or max for no limit)`},
	})
}

// TestManyEntries verifies that the first 256 entries count, wrong ones included.
func TestManyEntries(t *testing.T) {
	for _, tt := range []struct {
		entry, last   string
		valid, errors int
		err           string // the last one
	}{
		{entry: "/%d wbps=1Mi;", valid: 256},
		{entry: "/%d wbps=1Mi;", last: " ;\n# a comment", valid: 256},
		{entry: "/%d wbps=1Mi;", last: "/more wbps=1Mi; /even/more wbps=1Mi", valid: 256, errors: 1, err: "more than 256 entries (name fewer targets, or use *)"},
		{entry: "/%d wbps=x;", last: "/more wbps=1Mi", errors: 257, err: "more than 256 entries (name fewer targets, or use *)"},
	} {
		var value strings.Builder
		for i := range 256 {
			fmt.Fprintf(&value, tt.entry, i)
		}
		l := parseLimits(keyDB, value.String()+tt.last)
		if len(l.Entries) != tt.valid || len(l.errors) != tt.errors || l.count != 256 {
			t.Errorf("%s%s: %d valid entries and %d errors of %d", tt.entry, tt.last, len(l.Entries), len(l.errors), l.count)
			continue
		}
		if n := len(l.errors); n > 0 && l.errors[n-1].Error() != "nri-blkio: "+keyDB+": "+tt.err {
			t.Errorf("%s%s: %s", tt.entry, tt.last, l.errors[n-1])
		}
	}
}

// TestKeyErrors verifies that errors of keys and scopes fail each container of the pod.
func TestKeyErrors(t *testing.T) {
	const scopes = " (write /containers for each container, /pod-total for the pod as a whole, or /container.NAME)"
	const label = " (use at most 63 of a-z, 0-9 and -, not starting or ending with -)"
	const kinds = "unknown annotation (there are limits.blkio.noderesource.dev, weight.blkio.noderesource.dev and class.blkio.noderesource.dev)"
	tests := []struct{ key, want string }{
		{"limits.blkio.noderesource.dev/", "limits.blkio.noderesource.dev/: no scope after the slash" + scopes},
		{"blkio.noderesource.dev", "blkio.noderesource.dev: " + kinds},
		{"limits.blkio.noderesource.dev/pod", `limits.blkio.noderesource.dev/pod: invalid scope "pod"` + scopes},
		{"class.blkio.noderesource.dev/pod", `class.blkio.noderesource.dev/pod: invalid scope "pod"` + scopes},
		{"limits.blkio.noderesource.dev/pod.total", `limits.blkio.noderesource.dev/pod.total: unknown scope "pod.total" (did you mean "pod-total"?)`},
		{"limits.blkio.noderesource.dev/total", `limits.blkio.noderesource.dev/total: unknown scope "total" (write container.NAME, containers or pod-total)`},
		{"weight.blkio.noderesource.dev/pod", `weight.blkio.noderesource.dev/pod: invalid scope "pod"` + scopes},
		{"limits.blkio.noderesource.dev/container", `limits.blkio.noderesource.dev/container: unknown scope "container" (did you mean "containers"?)`},
		{"limits.blkio.noderesource.dev/pod_total", `limits.blkio.noderesource.dev/pod_total: unknown scope "pod_total" (did you mean "pod-total"?)`},
		{"limits.blkio.noderesource.dev/containers.db", `limits.blkio.noderesource.dev/containers.db: unknown scope "containers.db" (did you mean "container.db"?)`},
		{"limits.blkio.noderesource.dev/containers.DB", `limits.blkio.noderesource.dev/containers.DB: unknown scope "containers.DB" (write container.NAME, containers or pod-total)`},
		{"limits.blkio.noderesource.dev/db", `limits.blkio.noderesource.dev/db: unknown scope "db" (write container.NAME, containers or pod-total)`},
		{"limits.blkio.noderesource.dev/container.DB", `limits.blkio.noderesource.dev/container.DB: invalid container name "DB"` + label},
		{"limits.blkio.noderesource.dev/container.", `limits.blkio.noderesource.dev/container.: invalid container name ""` + label},
		{"limits.blkio.noderesource.dev/container.a.b", `limits.blkio.noderesource.dev/container.a.b: invalid container name "a.b"` + label},
		{"limits.blkio.noderesource.dev/container.-a", `limits.blkio.noderesource.dev/container.-a: invalid container name "-a"` + label},
		{"limits.blkio.noderesource.dev/a\x1b[2J", `"limits.blkio.noderesource.dev/a\x1b[2J": unknown scope "a\x1b[2J" (write container.NAME, containers or pod-total)`},
		{"limit.blkio.noderesource.dev/containers", `limit.blkio.noderesource.dev/containers: unknown annotation (did you mean "limits.blkio.noderesource.dev"?)`},
		{"latency.blkio.noderesource.dev/containers", "latency.blkio.noderesource.dev/containers: " + kinds},
		{"blkio.noderesource.dev/containers", "blkio.noderesource.dev/containers: " + kinds},
		{"class.blkio.noderesource.dev", `class.blkio.noderesource.dev: "* wbps=1Mi": invalid class name (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
		{"class.blkio.noderesource.dev/containers", `class.blkio.noderesource.dev/containers: "* wbps=1Mi": invalid class name (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
		{"class.blkio.noderesource.dev/pod-total", `class.blkio.noderesource.dev/pod-total: "* wbps=1Mi": a class applies to containers (write class.blkio.noderesource.dev/containers)`},
	}
	for _, tt := range tests {
		r := Parse(map[string]string{tt.key: "* wbps=1Mi"})
		for _, name := range []string{"db", "web"} {
			err := first(r, name)
			if err == nil || err.Error() != "nri-blkio: "+tt.want {
				t.Errorf("%q, container %s:\n got %v\nwant nri-blkio: %s", tt.key, name, err, tt.want)
				continue
			}
			checkLine(t, err.Error())
		}
	}
}

func TestWeightErrors(t *testing.T) {
	const key = "weight.blkio.noderesource.dev/container.db"
	const hint = ": invalid weight (write a whole number from 1 to 10000; the default is 100)"
	for value, want := range map[string]string{
		"":                                "the value is empty (write a whole number from 1 to 10000, or remove the annotation)",
		" \n":                             "the value is empty (write a whole number from 1 to 10000, or remove the annotation)",
		"0":                               `"0"` + hint,
		"10001":                           `"10001"` + hint,
		"-5":                              `"-5"` + hint,
		"1.5":                             `"1.5"` + hint,
		"1k":                              `"1k"` + hint,
		"5\x00":                           `"5\x00"` + hint,
		"999999999999999999999":           `"999999999999999999999"` + hint,
		"1" + strings.Repeat(" ", 64<<10): "the value is longer than 64 KiB (name fewer targets, or use *)",
	} {
		r := Parse(map[string]string{key: value})
		err := first(r, "db")
		if err == nil || err.Error() != "nri-blkio: "+key+": "+want || len(r.Named("db").Weights.Entries) != 0 {
			t.Errorf("%.40q: %v,\n got %v\nwant %s", value, r.Named("db").Weights.Entries, err, want)
		}
	}
}

// TestWeights covers the smallest and the largest valid weight, and the longest text of one.
func TestWeights(t *testing.T) {
	for value, want := range map[string]uint32{"1": 1, " 100\n": 100, "010": 10, "10000": 10000, "7" + strings.Repeat(" ", 64<<10-1): 7} {
		l := parseWeights(keyDB, value)
		if len(l.Entries) != 1 || l.Entries[0].Weight != want || len(l.errors) > 0 || l.From.Annotation != keyDB {
			t.Errorf("%.40q: %+v, %v", value, l.Entries, l.errors)
		}
	}
}

package annotation

import "testing"

// TestReasons verifies that the reasons are in the order of their kinds.
func TestReasons(t *testing.T) {
	for r, want := range map[Reason]Kind{Malformed: Invalid, TooManyMounts: Invalid, NoDisk: Unenforceable, VolumesNotKnown: Unenforceable, CannotBeLimited: Internal} {
		if r.Kind() != want {
			t.Errorf("%d is %s, want %s", r, r.Kind(), want)
		}
	}
}

// TestIdentity verifies that the sentence of an error is no part of its identity, and that everything else is.
func TestIdentity(t *testing.T) {
	of := Identity{From: Origin{Annotation: keyDB}, Entry: 1, Text: "/a wbps=1", Subject: "vda", Reason: NoRoom}
	a, b := New(of, &Problem{"1 of 2", "wait"}), New(of, &Problem{"2 of 2", ""})
	if a.Identity != b.Identity || a.String() != b.String() {
		t.Errorf("%v and %v", a.Identity, b.Identity)
	}
	seen := map[string]bool{of.String(): true}
	for _, change := range []func(*Identity){
		func(i *Identity) { i.From = Origin{Claim: keyDB} }, func(i *Identity) { i.From.Class = "c" }, func(i *Identity) { i.Entry = 2 },
		func(i *Identity) { i.Text = "/a wbps=2" }, func(i *Identity) { i.Subject = "" }, func(i *Identity) { i.Reason = NeedsLimit },
	} {
		other := of
		change(&other)
		if other == of || seen[other.String()] {
			t.Errorf("%v is the same as another one", other)
		}
		seen[other.String()] = true
	}
}

// TestWithoutOrigin verifies that an error without its origin is the end of its line.
func TestWithoutOrigin(t *testing.T) {
	for _, e := range []*Error{
		New(Identity{From: Origin{Claim: "a", Class: "b"}, Text: "wbps=x"}, &Problem{"no", "yes"}), New(Identity{From: Origin{Field: "budgets"}}, &Problem{"no", ""}),
		New(Identity{From: Origin{Rule: "r"}, Entry: 3, Text: "/a"}, &Problem{"no", ""}),
	} {
		head := "nri-blkio: " + e.From.String() + ": "
		if e.From.Field == "" {
			head = `nri-blkio: "` + e.From.String() + `": `
		}
		if got := head + e.WithoutOrigin(); got != e.Error() {
			t.Errorf("%s, want %s", got, e.Error())
		}
	}
}

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

func TestResultText(t *testing.T) {
	for want, r := range map[string]noise.Result{
		"1490 reads a second, 99 % of them within 3.5 ms": {Rate: 1490.4, P99: 3.46},
		"39 reads a second, 99 % of them within 350 ms":   {Rate: 39.2, P99: 350.2},
	} {
		if got := resultText(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestCheckReads(t *testing.T) {
	for after, ok := range map[float64]bool{1200: true, 200: true, 199: false} {
		if err := checkReads(noise.Result{Rate: 100}, noise.Result{Rate: after}); (err == nil) != ok {
			t.Errorf("%.0f reads after 100: error %v, want success %t", after, err, ok)
		}
	}
}

func TestCheckBurst(t *testing.T) {
	for last, ok := range map[float64]bool{4: true, 10: true, 11: false, 0: false} {
		if err := checkBurst([]float64{20, 20, last}); (err == nil) != ok {
			t.Errorf("%.0f MiB after 20: error %v, want success %t", last, err, ok)
		}
	}
}

// TestCheckWhy verifies that the neighbour counts only in the first line.
func TestCheckWhy(t *testing.T) {
	for text, ok := range map[string]bool{
		"shop/db app: the disk vdj is busy, by batch/import\n":              true,
		"shop/db app: waits for its own limit\nothers: batch/import 90 %\n": false,
		"": false,
	} {
		if err := checkWhy(text); (err == nil) != ok {
			t.Errorf("%q: error %v, want success %t", text, err, ok)
		}
	}
}

// TestCheckTop verifies that top has to list both pods, and the neighbour as held by its limit.
func TestCheckTop(t *testing.T) {
	const header, db = "POD  CONTAINER  DISK  READ  WRITE  OPS  LIMIT  %HELD  %OTHER  %PSI\n", "shop/db  app  vdj  5.2M  0  1335  -  0  390  95\n"
	for text, ok := range map[string]bool{
		header + "batch/import  app        vdj  796K  9.3M  210  100% riops  97  250  97\n" + db: true,
		header + "batch/import  app        vdj  796K  9.3M  210  100% riops  12  250  97\n" + db: false,
		header + "batch/import  app        vdj  796K  9.3M  210  -           -   250  97\n" + db: false,
		header + "batch/import  (the pod)  vdj  796K  9.3M  210  100% riops  97  250  97\n" + db: false,
		header + "batch/import  app        vdj  796K  9.3M  210  100% riops  97  250  97\n":      false,
		header + db: false,
	} {
		if err := checkTop(text); (err == nil) != ok {
			t.Errorf("%q: error %v, want success %t", text, err, ok)
		}
	}
}

// TestMistake verifies that the mistake of the story has the hint that is looked for, and that only an error with this
// hint passes.
func TestMistake(t *testing.T) {
	p, err := policy.ParseFile([]byte(noise.PolicyHead + class))
	if err != nil {
		t.Fatal(err)
	}
	errs := p.ForPod(&policy.PodFacts{Namespace: "batch"}, annotation.Parse(map[string]string{annotationKey: mistake})).Check()
	if len(errs) != 1 {
		t.Fatalf("errors of %q: %v, want one", mistake, errs)
	}
	line, err := checkRefusal(errors.New("rpc error: NRI: nri-blkio: " + errs[0].Error()))
	if err != nil || !strings.HasPrefix(line, "nri-blkio: ") {
		t.Errorf("the plugin's part is %q, %v", line, err)
	}
	for _, err := range []error{nil, errors.New("no such image"), errors.New("nri-blkio: vdj: limits not in force")} {
		if line, got := checkRefusal(err); got == nil {
			t.Errorf("%v passes: %q", err, line)
		}
	}
}

// TestClass verifies that the policy of the story limits the namespace batch, and no other one.
func TestClass(t *testing.T) {
	p, err := policy.ParseFile([]byte(noise.PolicyHead + class))
	if err != nil {
		t.Fatal(err)
	}
	for namespace, limited := range map[string]bool{"batch": true, "shop": false} {
		d := p.ForPod(&policy.PodFacts{Namespace: namespace}, annotation.Parse(nil))
		if got := d.StarOf("app"); got != limited {
			t.Errorf("namespace %s is limited: %t, want %t", namespace, got, limited)
		}
	}
}

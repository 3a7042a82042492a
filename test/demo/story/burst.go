package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// The limit of a pod with a burst, and what the kernel has in io.max while it is in force.
const (
	bursting   = "/data wbps=4Mi wbps.burst=20Mi/3s"
	burstInMax = "wbps=20971520"
	watched    = 6 // seconds
)

// burst shows a pod that exceeds its limit while it has credits.
func (s *story) burst(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n7. The pod shop/report has the limit %q. After some seconds without writes it writes:\n", bursting)
	pod, err := s.pod(ctx, "shop", "report", map[string]string{annotationKey: bursting})
	if err != nil {
		return err
	}
	fmt.Fprintln(s.steps, "demo: waiting until shop/report has credits")
	if err := s.awaitMax(ctx, pod.Cgroup, burstInMax); err != nil {
		return err
	}
	time.Sleep(noise.Settle) // more credits
	fmt.Fprintf(s.steps, "demo: measuring shop/report for %d seconds\n", watched)
	written := make(chan error, 1)
	go func() {
		_, err := pod.Exec(ctx, time.Minute, "/bin/iotool", "write", "--direct", "--path", "/data/report", "--span", "16Mi", "--seconds", fmt.Sprint(watched+1))
		written <- err
	}()
	rates, err := perSecond(cgroup.Dir(pod.Cgroup), s.disk.Number)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "   %s MiB in each second\n", strings.Trim(fmt.Sprintf("%.0f", rates), "[]"))
	if err := <-written; err != nil {
		return err
	}
	return checkBurst(rates)
}

// perSecond returns the MiB that a cgroup writes in each second from its first write on.
func perSecond(dir cgroup.Dir, disk string) (rates []float64, err error) {
	last := int64(0)
	for range 100 {
		if last, err = dir.Counter(disk, "wbytes"); err != nil || last > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for range watched {
		time.Sleep(time.Second)
		now, readErr := dir.Counter(disk, "wbytes")
		if readErr != nil {
			return nil, readErr
		}
		rates = append(rates, float64(now-last)/noise.MiB)
		last = now
	}
	return rates, err
}

// checkBurst returns an error unless the first second has twice as much as the last one.
func checkBurst(rates []float64) error {
	if first, last := rates[0], rates[len(rates)-1]; last == 0 || first < 2*last {
		return fmt.Errorf("shop/report writes %.0f MiB in its first second and %.0f in the last one, want at least twice as much in the first", first, last)
	}
	return nil
}

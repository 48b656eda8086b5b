//go:build failpoints && unix

package main

import (
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"postrider/cmd/postrider/app"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/publish"
)

// This file is in no program that is shipped: without the build tag failpoints its environment variables mean nothing,
// and no moment of an event's way is told to anybody.

// lingering points are passed just before what they are named after: the process dies up to lingerFor later, at
// whatever moment of it that is.
var lingering = []string{
	publish.PointPublishInside, delivery.PointRecordInside, delivery.PointDeadLetter, jobs.PointSent,
}

// lingerFor is what a transaction of a hundred rows takes.
const lingerFor = 3 * time.Millisecond

// failpoint kills this process with SIGKILL at the point POSTRIDER_FAILPOINT, the first time that it is passed after
// SIGUSR1, or from the start on where POSTRIDER_FAILPOINT_ARMED is set. The file POSTRIDER_FAILPOINT_FILE then says
// which point it was.
type failpoint struct {
	name, file string
	armed      atomic.Bool
	once       sync.Once
}

func withFailpoint(o app.Options) app.Options {
	if threshold, err := strconv.Atoi(os.Getenv("POSTRIDER_ROUTE_THRESHOLD")); err == nil {
		o.RouteThreshold = threshold
	}
	f := &failpoint{name: os.Getenv("POSTRIDER_FAILPOINT"), file: os.Getenv("POSTRIDER_FAILPOINT_FILE")}
	if f.name == "" {
		return o
	}
	f.armed.Store(os.Getenv("POSTRIDER_FAILPOINT_ARMED") != "")
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		<-asked
		f.armed.Store(true)
	}()
	o.Failpoint = f.reach
	return o
}

func (f *failpoint) reach(point string) {
	if point != f.name || !f.armed.Load() {
		return
	}
	f.once.Do(func() {
		if !slices.Contains(lingering, point) {
			f.die(0)
		}
		go f.die(rand.N(lingerFor)) //nolint:gosec // keeps no secret
	})
}

func (f *failpoint) die(after time.Duration) {
	_ = os.WriteFile(f.file, []byte(f.name), 0o600) // nobody to tell: the test misses the file
	<-time.After(after)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

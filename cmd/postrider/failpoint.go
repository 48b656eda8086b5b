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

	"postrider/internal/node"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/publish"
)

// Released programs do not contain this file: it needs the build tag failpoints.

// lingering points are reached just before the action of their name. The process dies up to lingerFor later, at a
// random moment of that action.
var lingering = []string{
	publish.PointPublishInside, delivery.PointRecordInside, delivery.PointDeadLetter, jobs.PointSent,
}

// lingerFor is the duration of a transaction of a hundred rows.
const lingerFor = 3 * time.Millisecond

// failpoint kills this process with SIGKILL the first time that it reaches the point POSTRIDER_FAILPOINT after SIGUSR1,
// or after its start if POSTRIDER_FAILPOINT_ARMED is set. It writes the point to the file POSTRIDER_FAILPOINT_FILE.
type failpoint struct {
	name, file string
	armed      atomic.Bool
	once       sync.Once
}

func withFailpoint(o node.Options) node.Options {
	if threshold, err := strconv.Atoi(os.Getenv("POSTRIDER_ROUTE_THRESHOLD")); err == nil {
		o.RouteThreshold = threshold
	}
	f := &failpoint{name: os.Getenv("POSTRIDER_FAILPOINT"), file: os.Getenv("POSTRIDER_FAILPOINT_FILE")}
	if f.name == "" {
		return o
	}
	f.armed.Store(os.Getenv("POSTRIDER_FAILPOINT_ARMED") != "")
	armed := make(chan os.Signal, 1)
	signal.Notify(armed, syscall.SIGUSR1)
	go func() {
		<-armed
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
		go f.die(rand.N(lingerFor)) //nolint:gosec // not a secret
	})
}

func (f *failpoint) die(after time.Duration) {
	_ = os.WriteFile(f.file, []byte(f.name), 0o600) // on an error the test misses the file
	<-time.After(after)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}

package store

import (
	"context"
	"slices"
	"time"
)

// StepRoutesBy makes the steps of routes small, so that a test has many of them.
func (s *Store) StepRoutesBy(deliveries int) { s.stepLimit = deliveries }

// ReadRoutesBy makes the steps of routes small by the bytes of the bodies they read.
func (s *Store) ReadRoutesBy(bytes int) { s.stepBytes = bytes }

// LookBackSlowly makes every look back of this store's pumps a slow one.
func (s *Store) LookBackSlowly() { s.Loader.cutters.slow = 0 }

// PumpsWaiting is how many of this store's pumps wait for their turn.
func (s *Store) PumpsWaiting(subscription int64) int {
	c := s.Loader.cutters.of(subscription)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// LookBackAtOnce makes none a slow one, however busy the machine is.
func (s *Store) LookBackAtOnce() { s.Loader.cutters.slow = time.Hour }

// KeptStatement is a statement whose plan is kept, and what its transaction sets first.
type KeptStatement struct{ SQL, Settings string }

// KeptStatements are all of them.
func KeptStatements() map[string]KeptStatement {
	return map[string]KeptStatement{
		"fetch": {fetchStatement, inOrder}, "load": {loadStatement, keepPlan}, "publish": {publishStatement, keepPlan}, "store and route": {storeRouteStatement, keepPlan},
		"bind": {bindStatement, keepPlan}, "record": {recordStatement, keepPlan}, "record ends": {recordEndsStatement, keepPlan}, "batch": {batchStatement, keepPlan}, "members": {membersStatement, keepPlan}, "end jobs": {endJobStatement, keepPlan},
	}
}

// FixRoom says how many jobs of an event subscription may be queued, in place of a gate. Call it before Run.
func (s *Store) FixRoom(of func(subscription int64, others int) int) { s.gate = fixedRoom(of) }

type fixedRoom func(subscription int64, others int) int

func (f fixedRoom) Room(subscription int64, others int) int { return f(subscription, others) }

// TakeOver lets the workers of a store take over the jobs of its publishes, as the start of an engine does.
func (s *Store) TakeOver() { s.Handoff.Open(time.Second, time.Second) }

// TakenOver are the jobs that publishes gave to the workers, and how many workers are reserved for others.
func (s *Store) TakenOver() (jobs []LocalJob, reserved int) {
	s.Handoff.mu.Lock()
	defer s.Handoff.mu.Unlock()
	return slices.Clone(s.Handoff.waiting), s.Handoff.reserved
}

// FreeMemory is how many bytes of bodies may be read now.
func (s *Store) FreeMemory() int64 {
	free, _ := s.memory.free()
	return free
}

// LastEventsWithin is LastEvents with another time to do it in.
var LastEventsWithin = lastEvents

// Written reports whether retention would wait for an open transaction that may have written to a partition of this day.
func (s *Store) Written(ctx context.Context, table string, day time.Time) (bool, error) {
	return s.written(ctx, dayTable{Name: table, Day: day})
}

// ForgetReadings makes a meter ask the database the next time.
func ForgetReadings(m *Meter) { m.at = time.Time{} }

// Elapse makes a meter believe that everything was so many minutes ago.
func Elapse(m *Meter, minutes int) {
	m.began = m.began.Add(-time.Duration(minutes) * time.Minute)
	m.from = m.from.Add(-time.Duration(minutes) * time.Minute)
}

// TellApart bounds what a meter tells apart.
func TellApart(m *Meter, keys int) { m.limit = keys }

// PublishFiltered is Publish as it is tried in the end while the catalogue keeps moving.
func (s *Store) PublishFiltered(ctx context.Context, p Publication) (err error) {
	req := &publishRequest{Publication: p, queued: time.Now(), done: make(chan error, 1)}
	if err := req.admittedBy(s.Catalogue()); err != nil {
		return err
	}
	if req.receipt.Events, err = p.Parse(req.receipt.Topic); err != nil {
		return err
	}
	req.identify(s.ids)
	req.filter(s.Catalogue(), s.threshold)
	if req.keyed = req.mayRepeat(); req.keyed {
		err = s.commitKeyed(ctx, []*publishRequest{req}, true)
	} else {
		err = s.commitFiltered(ctx, []*publishRequest{req})
	}
	if err != nil {
		return err
	}
	return <-req.done
}

// EndsSQL is the part of the recorder's statement that says how a delivery ends.
func EndsSQL() string { return sqlFile("ends.sql") }

package publish

import (
	"context"
	"time"

	"postrider/postgres"
)

// LimitSteps bounds the steps of routes by deliveries and by bytes of bodies; 0 leaves a limit as it is. It is for
// tests, before Run.
func (p *Publisher) LimitSteps(deliveries, bytes int) {
	if deliveries > 0 {
		p.stepLimit = deliveries
	}
	if bytes > 0 {
		p.stepBytes = bytes
	}
}

// PublishFiltered publishes as Publish does in the end while the catalog keeps changing: with the filters in memory. It
// is for tests.
func (p *Publisher) PublishFiltered(ctx context.Context, publication Publication) (err error) {
	req := &publishRequest{Publication: publication, queued: time.Now(), done: make(chan error, 1)}
	if err := req.admittedBy(p.cache.Snapshot()); err != nil {
		return err
	}
	if req.Receipt.Events, err = publication.Parse(req.Receipt.Topic); err != nil {
		return err
	}
	req.identify(p.ids)
	req.filter(p.cache.Snapshot(), p.threshold)
	if req.keyed = req.mayRepeat(); req.keyed {
		err = p.commitKeyed(ctx, []*publishRequest{req}, true)
	} else {
		err = p.commitFiltered(ctx, []*publishRequest{req})
	}
	if err != nil {
		return err
	}
	return <-req.done
}

// PublishStatements are the statements whose plans are kept, for tests.
func PublishStatements() map[string]postgres.KeptStatement {
	return map[string]postgres.KeptStatement{
		"publish":         {SQL: publishStatement, Settings: postgres.KeepPlan},
		"store and route": {SQL: storeRouteStatement, Settings: postgres.KeepPlan},
	}
}

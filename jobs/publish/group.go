package publish

import (
	"fmt"

	"postrider/catalog"
	"postrider/postgres"
)

// fitsGroup measures one group: always at least one request.
func fitsGroup() func(*publishRequest) bool {
	events, deliveries, bytes := 0, 0, int64(0)
	return func(req *publishRequest) bool {
		first := events == 0
		events += len(req.Receipt.Events)
		deliveries += req.Receipt.Deliveries()
		bytes += req.bytes
		return first || (events <= groupEvents && deliveries <= groupDeliveries && bytes <= groupBytes)
	}
}

// refilter answers the requests that the catalogue refuses and returns the others, all of its version. Those whose
// topic has begun to detect duplicates since they were queued are put off, for another queue.
func refilter(group []*publishRequest, catalogue *catalog.Snapshot) []*publishRequest {
	kept := make([]*publishRequest, 0, len(group)) // not in place: the caller still holds group
	for _, req := range group {
		if err := req.refilter(catalogue); err != nil {
			req.answer(err)
			continue
		}
		if !req.keyed && req.mayRepeat() {
			req.keyed, req.postponed = true, true
			continue
		}
		kept = append(kept, req)
	}
	return kept
}

func refuse(req *publishRequest, err error) error {
	req.answer(fmt.Errorf("%w: %w", postgres.ErrPoison, err))
	return nil
}

func unanswered(group []*publishRequest) []*publishRequest {
	rest := make([]*publishRequest, 0, len(group))
	for _, req := range group {
		if !req.answered && !req.postponed {
			rest = append(rest, req)
		}
	}
	return rest
}

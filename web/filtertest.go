package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
)

// filterTester is the part of the form that tries its filter, and what came of that.
type filterTester struct {
	Action, Part string
	Event        formField
	Open         bool
	Asked, Focus bool
	Brought      bool // with an event of the person's own
	Refused      string
	Wanted       int
	Results      []filterResult
}

// filterResult is what the filter says of one event.
type filterResult struct {
	ID      string
	Matched bool
	Clauses []filterClause
}

type filterClause struct {
	Clause string
	Passed bool
	Why    string
}

// testFilter asks the API about the filter that is typed, which nobody has stored.
func (p *pages) testFilter(ctx context.Context, c echo.Context, e *subscriptionEditor) error {
	question := map[string]any{"filter": e.form.filter()}
	if brought := e.form.get("event"); brought != "" {
		e.tester.Brought = true
		question["event"] = json.RawMessage(brought)
		if !json.Valid([]byte(brought)) {
			e.form.mistake("event", "This is not one JSON document.")
			c.Set(refusalKey, &refusedError{status: http.StatusBadRequest, text: "The filter was not tested."})
			return nil
		}
	}
	body, err := plainJSON(question)
	if err != nil {
		return fmt.Errorf("write the filter: %w", err)
	}
	answer, err := p.ask(ctx, c, http.MethodPost, apiTopic(e.topic.Name)+"/testFilter", body)
	if err != nil {
		if !e.form.blame(err, namesOf(append(e.sections(), formSection{Fields: []formField{{Name: "event"}}}))) {
			return err
		}
		c.Set(refusalKey, e.form.refusal(err, "The filter was not tested"))
		// said where the button is: without the rest of the page, it is the only part that changes
		if others := e.form.others; len(others) > 0 {
			e.tester.Asked, e.tester.Refused, e.form.others = true, others[0], nil
		}
		return nil
	}
	var said struct{ Value []filterResult }
	if err := answer.read(&said); err != nil {
		return err
	}
	e.tester.Asked, e.tester.Focus, e.tester.Results = true, true, said.Value
	for _, result := range said.Value {
		if result.Matched {
			e.tester.Wanted++
		}
	}
	return nil
}

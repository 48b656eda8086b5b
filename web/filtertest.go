package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"postrider/web/site"

	"github.com/labstack/echo/v4"

	"postrider/policy/filter"
)

// filterTester is the part of the form that tests its filter, with the result.
type filterTester struct {
	Action, Part string
	Event        formField
	Open         bool
	Done, Focus  bool
	Entered      bool // with an event that the user entered
	Rejected     string
	Matched      int
	Results      []filterResult
}

// filterResult is the result of the filter for one event.
type filterResult struct {
	ID      string
	Matched bool
	Clauses []filter.Clause
}

func (s *subscriptionForm) filterTester(part string) *filterTester {
	t := s.tester
	t.Action, t.Part = s.action, part
	t.Event = s.fields(formField{
		Name: "event", Label: "One event", Kind: kindJSON, Rows: 4, Wide: true, Hint: "In the schema of the topic, " +
			string(s.topic.InputSchema) + ". Empty: the topic’s last 50 events. Nothing is stored or delivered.",
	})[0]
	t.Open = t.Done || len(t.Event.Mistakes) > 0
	return &t
}

// testFilter tests the filter of the form, which is not stored.
func (s *subscriptionForm) testFilter(ctx context.Context, c echo.Context) error {
	const rejected = "The filter was not tested"
	settings, _ := s.settings()
	request := map[string]any{"filter": settings["filter"]}
	if entered := s.get("event"); entered != "" {
		s.tester.Entered = true
		request["event"] = json.RawMessage(entered)
		if !json.Valid([]byte(entered)) {
			s.mistake("event", "This is not one JSON document.")
			return &site.RejectionError{Status: http.StatusBadRequest, Text: rejected + "."}
		}
	}
	body, err := plainJSON(request)
	if err != nil {
		return fmt.Errorf("write the filter: %w", err)
	}
	answer, err := s.pages.ask(ctx, c, http.MethodPost, apiTopic(s.topic.Name)+"/testFilter", body)
	if err != nil {
		err = s.rejected(err, rejected)
		var said *site.RejectionError
		if delete(s.mistakes, ""); len(s.mistakes) == 0 && errors.As(err, &said) {
			s.tester.Done, s.tester.Rejected = true, said.Text // at the button: only this part of the page changes
		}
		return err
	}
	var tested struct{ Value []filterResult }
	if err := answer.read(&tested); err != nil {
		return err
	}
	s.tester.Done, s.tester.Focus, s.tester.Results = true, true, tested.Value
	for _, result := range tested.Value {
		if result.Matched {
			s.tester.Matched++
		}
	}
	return nil
}

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// admin speaks the management API of a service and asks sinks for their figures.
type admin struct {
	base, token string
	client      http.Client
}

// creators is how many calls are made at once where there are many: changes of the catalogue wait for one another, and
// for their commits, so more would only wait longer.
const creators = 16

func newAdmin(base, token string) *admin {
	return &admin{base: base, token: token, client: http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: creators},
	}}
}

// call sends in as JSON, unless nil, and reads the answer's JSON into out, unless nil. Any status but 2xx is an error
// with what the service said.
func (a *admin) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
	case resp.StatusCode/100 != 2:
		err = fmt.Errorf("answered %d: %s", resp.StatusCode, bytes.TrimSpace(text))
	case out != nil:
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// createTopic makes a topic and returns one of its access keys. Only the answer that makes a topic has keys, so it must
// be new.
func (a *admin) createTopic(ctx context.Context, topic string) (string, error) {
	var created struct {
		Key1 string `json:"key1"`
	}
	if err := a.call(ctx, http.MethodPut, "/v1/topics/"+topic, struct{}{}, &created); err != nil {
		return "", err
	}
	if created.Key1 == "" {
		return "",
			errors.New("topic " + topic + " exists already, with access keys that somebody else may change: delete it first")
	}
	return created.Key1, nil
}

// subscription is what a benchmark says of an event subscription; the rest is the default.
type subscription struct {
	EndpointURL string `json:"endpointUrl"`
	// EndpointValidation is always skip: the endpoints are the benchmark's own.
	EndpointValidation string       `json:"endpointValidation"`
	RetryPolicy        *retryPolicy `json:"retryPolicy,omitempty"`
	Filter             *filter      `json:"filter,omitempty"`
	// Above 1 event and with this size, batches are cut by number alone.
	MaxEventsPerBatch  int `json:"maxEventsPerBatch,omitempty"`
	PreferredBatchSize int `json:"preferredBatchSizeInKilobytes,omitempty"`
}

type retryPolicy struct {
	Policy string `json:"policy"`
}

// filter is always case-sensitive: comparing without regard to case costs the publish more, and is not what is
// measured.
type filter struct {
	SubjectBeginsWith      string `json:"subjectBeginsWith"`
	IsSubjectCaseSensitive bool   `json:"isSubjectCaseSensitive"`
}

// wanting is the filter for the events whose subject begins so.
func wanting(subject string) *filter {
	return &filter{SubjectBeginsWith: subject, IsSubjectCaseSensitive: true}
}

func (a *admin) createSubscription(ctx context.Context, topic, name string, s subscription) error {
	s.EndpointValidation = "skip"
	return a.call(ctx, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name, s, nil)
}

// setPaused pauses or resumes an event subscription.
func (a *admin) setPaused(ctx context.Context, topic, name string, paused bool) error {
	verb := "resume"
	if paused {
		verb = "pause"
	}
	return a.call(ctx, http.MethodPost, "/v1/topics/"+topic+"/subscriptions/"+name+"/"+verb, nil, nil)
}

// remove deletes a topic with those event subscriptions.
func (a *admin) remove(ctx context.Context, topic string, subscriptions []string) error {
	var errs []error
	for _, name := range subscriptions {
		errs = append(errs, a.call(ctx, http.MethodDelete, "/v1/topics/"+topic+"/subscriptions/"+name, nil, nil))
	}
	errs = append(errs, a.call(ctx, http.MethodDelete, "/v1/topics/"+topic, nil, nil))
	return errors.Join(errs...)
}

// sinkStats asks a CountingSink.
func (a *admin) sinkStats(ctx context.Context) (stats SinkStats, err error) {
	return stats, a.call(ctx, http.MethodGet, "/stats", nil, &stats)
}

func (a *admin) close() { a.client.CloseIdleConnections() }

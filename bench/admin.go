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

// parallelChanges is how many topics or event subscriptions are created at once. Changes wait for one another.
const parallelChanges = 16

// admin is a client of the management API, and of a receiver's /stats.
type admin struct {
	base, token string
	client      http.Client
}

func newAdmin(base, token string) *admin {
	return &admin{base: base, token: token, client: http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: parallelChanges},
	}}
}

// settings is a JSON object.
type settings map[string]any

// call sends in as JSON, unless nil, and reads the response into out, unless nil. Any status but 2xx is an error.
func (a *admin) call(ctx context.Context, method, path string, in, out any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s: %w", method, path, err)
		}
	}()
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("response %d: %s", resp.StatusCode, bytes.TrimSpace(text))
	case out != nil:
		return json.Unmarshal(text, out)
	}
	return nil
}

func subscriptionPath(topic, name string) string {
	return "/v1/topics/" + topic + "/subscriptions/" + name
}

// createTopic returns an access key of the new topic.
func (a *admin) createTopic(ctx context.Context, topic string) (string, error) {
	var created struct {
		Key1 string `json:"key1"`
	}
	err := a.call(ctx, http.MethodPut, "/v1/topics/"+topic, settings{}, &created)
	if err == nil && created.Key1 == "" {
		err = errors.New("topic " + topic + " exists already: delete it first")
	}
	return created.Key1, err
}

// subscribe creates an event subscription without a validation handshake.
func (a *admin) subscribe(ctx context.Context, topic, name, endpoint string, more settings) error {
	s := settings{"endpointUrl": endpoint, "endpointValidation": "skip"}
	for name, value := range more {
		s[name] = value
	}
	return a.call(ctx, http.MethodPut, subscriptionPath(topic, name), s, nil)
}

// bySubject is the filter for events whose subject begins so. It is case-sensitive: the other comparison costs more.
func bySubject(prefix string) settings {
	return settings{"subjectBeginsWith": prefix, "isSubjectCaseSensitive": true}
}

func (a *admin) pause(ctx context.Context, topic, name string) error {
	return a.call(ctx, http.MethodPost, subscriptionPath(topic, name)+"/pause", nil, nil)
}

func (a *admin) resume(ctx context.Context, topic, name string) error {
	return a.call(ctx, http.MethodPost, subscriptionPath(topic, name)+"/resume", nil, nil)
}

// copyPolicy creates a copy of a retry policy with other settings.
func (a *admin) copyPolicy(ctx context.Context, from, to string, changes settings) error {
	var policy settings
	if err := a.call(ctx, http.MethodGet, "/v1/policies/"+from, nil, &policy); err != nil {
		return err
	}
	for name, value := range changes {
		policy[name] = value
	}
	return a.call(ctx, http.MethodPut, "/v1/policies/"+to, policy, nil)
}

// stats is of a receiver.
func (a *admin) stats(ctx context.Context) (stats receiverStats, err error) {
	return stats, a.call(ctx, http.MethodGet, "/stats", nil, &stats)
}

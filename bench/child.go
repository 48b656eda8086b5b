package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// readyTimeout is for a service whose database is on the same machine: it needs half a second.
	readyTimeout = 30 * time.Second
	// stopTimeout is above the 20 s in which the service completes running attempts.
	stopTimeout = 30 * time.Second
)

// child is a process of the postrider program, with a log file.
type child struct {
	name     string
	cmd      *exec.Cmd
	log      string
	ready    string // its ready file
	stopping context.CancelFunc
	done     chan struct{} // closed when it has ended
	err      error         // how it ended, once done is closed
}

// startChild runs the program with these arguments, and with the environment of this process without variables of
// postrider and PostgreSQL, and with extra. It inherits file, unless nil. It ends with stop, or on Linux with this process.
func startChild(dir, name, binary string, extra []string, file *os.File, args ...string) (*child, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	c := &child{name: name, log: log.Name(), ready: filepath.Join(dir, name+".json"), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	c.cmd, c.stopping = exec.CommandContext(ctx, binary, args...), cancel
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = stopTimeout
	c.cmd.Stdout, c.cmd.Stderr = log, log
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "POSTRIDER_") && !strings.HasPrefix(pair, "DATABASE_URL=") &&
			!strings.HasPrefix(pair, "PG") {
			c.cmd.Env = append(c.cmd.Env, pair)
		}
	}
	c.cmd.Env = append(c.cmd.Env, extra...)
	if file != nil {
		c.cmd.ExtraFiles = []*os.File{file}
	}
	c.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// startServer is startChild for a program that writes a ready file. It returns when that file has the URL.
func startServer(
	ctx context.Context, dir, name, binary string, extra []string, member string, args ...string,
) (c *child, address string, err error) {
	args = append(args, "--listen", "127.0.0.1:0", "--ready-file", filepath.Join(dir, name+".json"))
	if c, err = startChild(dir, name, binary, extra, nil, args...); err != nil {
		return nil, "", err
	}
	if address, err = c.awaitReady(ctx, member); err != nil {
		return nil, "", errors.Join(err, c.stop())
	}
	return c, address, nil
}

// run keeps its thread until the child has ended. Linux sends the signal of a parent's death when the thread that
// forked ends, and Go ends idle threads.
func (c *child) run(started chan<- error) {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

// awaitReady returns a member of the ready file.
func (c *child) awaitReady(ctx context.Context, member string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		content := map[string]string{}
		if raw, err := os.ReadFile(c.ready); err == nil && json.Unmarshal(raw, &content) == nil && content[member] != "" {
			return content[member], nil
		}
		select {
		case <-c.done:
			return "", c.ended()
		default:
		}
		if !pause(ctx, 20*time.Millisecond) {
			return "", c.explain(fmt.Errorf("%s is not ready: %w", c.name, ctx.Err()))
		}
	}
}

// ended is the error of a child that ended too early.
func (c *child) ended() error {
	return c.explain(fmt.Errorf("%s ended: %w", c.name, cmp.Or(c.err, errors.New("exit status 0"))))
}

// explain adds the last lines of the child's log to an error.
func (c *child) explain(err error) error {
	raw, _ := os.ReadFile(c.log)
	lines := bytes.Split(bytes.TrimSpace(raw), []byte{'\n'})
	last := bytes.Join(lines[max(len(lines)-15, 0):], []byte{'\n'})
	if len(last) == 0 {
		return err
	}
	return fmt.Errorf("%w; the end of its log:\n%s", err, last)
}

// stop sends SIGTERM, kills a child that takes too long, and returns when it has ended. The error is of a child that
// did not end in order now.
func (c *child) stop() error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.stopping()
	<-c.done
	if c.err == nil || errors.Is(c.err, context.Canceled) { // what Wait returns of an orderly end
		return nil
	}
	return c.explain(fmt.Errorf("stop %s: %w", c.name, c.err))
}

// parallelChanges is how many topics or event subscriptions are created at once.
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
	maps.Copy(s, more)
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
	maps.Copy(policy, changes)
	return a.call(ctx, http.MethodPut, "/v1/policies/"+to, policy, nil)
}

// stats is of a receiver.
func (a *admin) stats(ctx context.Context) (stats receiverStats, err error) {
	return stats, a.call(ctx, http.MethodGet, "/stats", nil, &stats)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"postrider/internal/local"
	"postrider/internal/terminal"
)

type sinkCmd struct {
	Listen    string `help:"Address to listen on." default:"127.0.0.1:7481" env:"POSTRIDER_SINK_LISTEN"`
	ReadyFile string `help:"File to write (JSON) when the endpoint is ready." placeholder:"FILE"`
	Quiet     bool   `help:"Do not print a line per request."`
}

func (c *sinkCmd) Run(ctx context.Context, std terminal.Streams) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	base := "http://" + listener.Addr().String()
	var onRequest func(local.SinkRequest)
	if !c.Quiet {
		onRequest = func(r local.SinkRequest) {
			fmt.Fprintf(std.Out, "%s %s attempt %d %v\n", time.Now().Format(time.TimeOnly), r.Path, r.DeliveryCount+1,
				r.EventIDs)
		}
	}
	fmt.Fprintf(std.Out, "Demo endpoint at %s: /ok /flaky /slow /status/{code} /hang\n", base)
	if err := local.WriteReadyFile(c.ReadyFile, local.ReadyInfo{Sink: base}); err != nil {
		return err
	}
	return serveSink(ctx, listener, local.NewDemoSink(onRequest))
}

func serveSink(ctx context.Context, listener net.Listener, handler http.Handler) error {
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = srv.Close() }) // also ends requests to /hang
	defer stopped()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the demo endpoint: %w", err)
	}
	return nil
}

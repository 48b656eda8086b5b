package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// readyInfo tells another program where everything is. Written with mode 0600: it holds secrets in dev.
type readyInfo struct {
	API         string `json:"api,omitempty"`
	Health      string `json:"health,omitempty"` // instead of api, where there is nothing else
	Sink        string `json:"sink,omitempty"`
	DatabaseURL string `json:"databaseUrl,omitempty"`
	AdminToken  string `json:"adminToken,omitempty"`
	TopicKey    string `json:"topicKey,omitempty"`
}

// writeReadyFile writes a temporary file and renames it, so that a reader never sees half of it. An empty path writes nothing.
func writeReadyFile(path string, info readyInfo) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".postrider-ready-*")
	if err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	_, err = temporary.Write(append(content, '\n'))
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return fmt.Errorf("write the ready file: %w", err)
	}
	return nil
}

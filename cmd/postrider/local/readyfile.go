package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// ReadyInfo tells another program where everything is. Written with mode 0600: it holds secrets in dev.
type ReadyInfo struct {
	API         string `json:"api,omitempty"`
	APITLS      string `json:"apiTls,omitempty"` // beside api, in dev --tls
	CAFile      string `json:"caFile,omitempty"` // the certificate of apiTls, for clients to trust
	Health      string `json:"health,omitempty"` // instead of api, where there is nothing else
	Sink        string `json:"sink,omitempty"`
	DatabaseURL string `json:"databaseUrl,omitempty"`
	AdminToken  string `json:"adminToken,omitempty"`
	TopicKey    string `json:"topicKey,omitempty"`
}

// WriteReadyFile writes the file that a reader never sees half of. An empty path writes nothing.
func WriteReadyFile(path string, info ReadyInfo) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(info, "", "  ")
	if err == nil {
		err = ReplaceFile(path, 0o600, append(content, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	return nil
}

// ReplaceFile writes a temporary file beside path and renames it: there is the whole of the old content, or of the new.
func ReplaceFile(path string, mode os.FileMode, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".postrider-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

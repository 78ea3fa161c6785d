// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"encoding/json"
	"net/http"
)

// envelope is around every answer.
type envelope struct {
	Success  bool      `json:"success"`
	Errors   []message `json:"errors"`
	Messages []message `json:"messages"`
	Result   any       `json:"result"`
}

type message struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// apiError is an error as a client sees it.
type apiError struct {
	status int
	message
}

func (f *apiError) Error() string { return f.Message }

func newAPIError(status, code int, text string) *apiError {
	return &apiError{status: status, message: message{Code: code, Message: text}}
}

// writeEnvelope answers a request.
func writeEnvelope(w http.ResponseWriter, result any, failed *apiError) {
	answer, status := envelope{Success: failed == nil, Errors: []message{}, Messages: []message{}, Result: result}, http.StatusOK
	if failed != nil {
		answer.Errors, answer.Result, status = []message{failed.message}, nil, failed.status
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // a client that is gone needs no answer
}

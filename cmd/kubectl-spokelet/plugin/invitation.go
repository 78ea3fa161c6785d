// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Values of --output of join.
const (
	outputHelm   = "helm"
	outputValues = "values"
	outputJSON   = "json"
)

// hubPage is how the hub is reached and recognised.
type hubPage struct {
	Address       string `json:"address"`
	CAFingerprint string `json:"caFingerprint"`
}

// invitation is what a cluster needs to join. Its JSON form is stable.
type invitation struct {
	Cluster string      `json:"cluster"`
	Hub     hubPage     `json:"hub"`
	Token   string      `json:"token"`
	Expires metav1.Time `json:"expires"`
	Chart   string      `json:"chart"`
}

var joinPrinters = map[string]func(io.Writer, invitation) error{
	outputHelm:   printHelm,
	outputValues: printValues,
	outputJSON:   printJSON,
}

// manyPrinters print one of many clusters, where that is not as one alone.
var manyPrinters = map[string]func(io.Writer, invitation) error{
	outputValues: func(w io.Writer, i invitation) error {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return printValues(w, i)
	},
	outputJSON: func(w io.Writer, i invitation) error { return json.NewEncoder(w).Encode(i) },
}

// printHelm prints one line for a POSIX shell.
func printHelm(w io.Writer, i invitation) error {
	words := []string{"helm", "install", "spokelet-agent", i.Chart, "--namespace", "spokelet-agent", "--create-namespace"}
	for _, set := range [][2]string{
		{"hub.address", i.Hub.Address},
		{"hub.caFingerprint", i.Hub.CAFingerprint},
		{"cluster.name", i.Cluster},
		{"join.token", i.Token},
	} {
		// --set would make a number of the name "007", and null of "null".
		words = append(words, "--set-string", set[0]+"="+escapeHelm(set[1]))
	}
	for n, word := range words {
		words[n] = quote(word)
	}
	_, err := fmt.Fprintln(w, strings.Join(words, " "))
	return err
}

// escapeHelm protects what Helm's --set-string would read as several values.
func escapeHelm(value string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `{`, `\{`, `}`, `\}`).Replace(value)
}

// quote leaves alone the words that no shell changes.
func quote(word string) string {
	plain := func(r rune) bool {
		return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || strings.ContainsRune("-_./:=@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func printValues(w io.Writer, i invitation) error {
	values, err := yaml.Marshal(map[string]any{
		"hub":     map[string]string{"address": i.Hub.Address, "caFingerprint": i.Hub.CAFingerprint},
		"cluster": map[string]string{"name": i.Cluster},
		"join":    map[string]string{"token": i.Token},
	})
	if err != nil {
		return err
	}
	_, err = w.Write(values)
	return err
}

func printJSON(w io.Writer, i invitation) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(i)
}

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parse reads arguments as the command does.
func parse(args ...string) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("request-state", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.Bind(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.Validate()
}

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   string
		want   Options
		err    string
	}{
		"defaults":           {reason: "they are those of the original", want: Options{Mode: Director, Namespace: "default", Delay: 2 * time.Second}},
		"worker":             {reason: "all that it has", args: "-mode worker -namespace n -kubeconfig k -master m -delay 0", want: Options{Mode: Worker, Namespace: "n", Kubeconfig: "k", Master: "m"}},
		"director":           {reason: "all that it has besides", args: "-mode director -request r -cleanup -delay 1m", want: Options{Mode: Director, Namespace: "default", Delay: time.Minute, Request: "r", Cleanup: true}},
		"unknown mode":       {reason: "it would be taken for a director", args: "-mode boss", err: `mode "boss"`},
		"no mode":            {reason: "as above", args: "-mode=", err: `mode ""`},
		"all namespaces":     {reason: "the programs act in one", args: "-namespace=", err: "namespace"},
		"negative delay":     {reason: "no step takes less than no time", args: "-delay -1s", err: "delay -1s"},
		"request of worker":  {reason: "it would be ignored", args: "-mode worker -request r", err: "request and cleanup"},
		"clean-up of worker": {reason: "it would be ignored", args: "-mode worker -cleanup", err: "request and cleanup"},
		"unknown flag":       {reason: "a slip of the pen", args: "-modus worker", err: "-modus"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.Fields(c.args)...)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %s, as %s", err, c.err, c.reason)
				}
				return
			}
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("as %s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestAKubeconfigThatIsNotThereIsAnError(t *testing.T) {
	o := Options{Kubeconfig: t.TempDir() + "/none"}
	if _, err := o.Config(); err == nil {
		t.Error("it is not")
	}
	o = Options{Master: "https://192.0.2.1"}
	config, err := o.Config()
	if err != nil || config.Host != o.Master {
		t.Errorf("got %v, %v", config, err)
	}
}

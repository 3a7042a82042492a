package main

import (
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
)

// logger returns the log of run, with the level and the format of the flags.
func (a *app) logger() (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(a.stderr)
	level, err := logrus.ParseLevel(a.opts.logLevel)
	if err != nil {
		return nil, usage(fmt.Errorf("--log-level: %w", err))
	}
	log.SetLevel(level)
	switch a.opts.logFormat {
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	case "json":
		log.SetFormatter(&jsonFormatter{logrus.JSONFormatter{DisableHTMLEscape: true}})
	default:
		return nil, usage(fmt.Errorf("--log-format: unknown value %q (write text or json)", a.opts.logFormat))
	}
	return log, nil
}

// jsonFormatter writes durations as text, "500ms". As a JSON number they would be
// nanoseconds without a unit.
type jsonFormatter struct{ logrus.JSONFormatter }

// Format changes the entry, which is logrus's copy for this one line.
func (f *jsonFormatter) Format(e *logrus.Entry) ([]byte, error) {
	for key, value := range e.Data {
		if d, ok := value.(time.Duration); ok {
			e.Data[key] = d.String()
		}
	}
	return f.JSONFormatter.Format(e)
}

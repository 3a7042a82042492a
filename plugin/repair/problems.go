package repair

import (
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// problems logs errors. Those that last have keys.
type problems struct {
	log      logrus.FieldLogger
	lasting  map[string]*reminder.Reminder
	failures rate.Sometimes // of single files; the others are counted
	recovery *recovery.Recovery
}

func newProblems(log logrus.FieldLogger, panics *recovery.Recovery) problems {
	return problems{
		log: log, lasting: map[string]*reminder.Reminder{}, failures: rate.Sometimes{First: 1, Interval: time.Minute},
		recovery: panics,
	}
}

// complain logs an error when it is new, again every ten minutes while it lasts,
// and when it has passed.
func (p *problems) complain(key, text string, err error) {
	problem := p.lasting[key]
	if err == nil {
		if problem != nil {
			p.log.Info(text + ": no more")
			delete(p.lasting, key) // keys name filesystems, which come and go
		}
		return
	}
	if problem == nil {
		problem = &reminder.Reminder{}
		p.lasting[key] = problem
	}
	if problem.Due(time.Now(), err) {
		p.log.WithError(err).Warn(text)
	}
}

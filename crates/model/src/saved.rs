//! Models in files.
//!
//! A file says which format it is in, then which type of model, then its numbers. What does not hold together is refused
//! by name; nothing that was read can make an answer panic.

use serde::{Deserialize, Serialize};

use crate::boost::Ensemble;
use crate::perceptron::Network;
use crate::regress::Predict;
use crate::ridge::Linear;
use crate::support::Waves;
use crate::table::WidthMismatch;

/// The format this crate writes, and the newest it reads.
const FORMAT: u32 = 1;

/// A fitted model of any type of this crate: what is kept in files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fitted {
    /// Of [`Ridge`](crate::Ridge).
    Linear(Linear),
    /// Of [`Boosting`](crate::Boosting), [`DecisionTree`](crate::DecisionTree) or [`Forest`](crate::Forest).
    Trees(Ensemble),
    /// Of [`Perceptron`](crate::Perceptron).
    Network(Network),
    /// Of [`SupportVectors`](crate::SupportVectors).
    Waves(Waves),
}

/// A model whose parts do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a model: {0}; fit it again from the records")]
pub struct InvalidModel(pub(crate) String);

/// Why a model cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFileError {
    /// A later version of this crate wrote it.
    #[error(
        "the model is in format {found}, this program reads up to {FORMAT}: use a newer one, or fit it again from the records"
    )]
    Newer {
        /// The format of the file.
        found: u32,
    },
    /// It is damaged, or no model at all.
    #[error("the model cannot be read: {0}; fit it again from the records")]
    Corrupt(#[source] serde_json::Error),
    /// It could not be put into words.
    #[error("the model cannot be written: {0}")]
    Write(#[source] serde_json::Error),
}

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    model: &'a Fitted,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Read {
    model: Fitted,
}

impl Fitted {
    /// The model as JSON.
    pub fn to_json(&self) -> Result<String, ModelFileError> {
        let written = Written {
            format: FORMAT,
            model: self,
        };
        serde_json::to_string(&written).map_err(ModelFileError::Write)
    }

    /// Reads what [`to_json`](Self::to_json) wrote: the same model, the same answers.
    pub fn from_json(text: &str) -> Result<Self, ModelFileError> {
        // The format first: what a newer one holds need not make sense here.
        let Format { format } = serde_json::from_str(text).map_err(ModelFileError::Corrupt)?;
        if format > FORMAT {
            return Err(ModelFileError::Newer { found: format });
        }
        let Read { model } = serde_json::from_str(text).map_err(ModelFileError::Corrupt)?;
        Ok(model)
    }

    /// The form that answers fastest, with the same answers.
    pub fn compile(self) -> Box<dyn Predict> {
        match self {
            Self::Linear(model) => Box::new(model),
            Self::Trees(model) => Box::new(model.flatten()),
            Self::Network(model) => Box::new(model),
            Self::Waves(model) => Box::new(model),
        }
    }

    fn model(&self) -> &dyn Predict {
        match self {
            Self::Linear(model) => model,
            Self::Trees(model) => model,
            Self::Network(model) => model,
            Self::Waves(model) => model,
        }
    }
}

impl Predict for Fitted {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        self.model().predict(features)
    }

    fn width(&self) -> usize {
        self.model().width()
    }
}

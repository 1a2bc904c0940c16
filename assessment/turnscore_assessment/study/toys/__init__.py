"""Three toy chatbots and a study of them, so that a study can be tried. Scores nothing."""
